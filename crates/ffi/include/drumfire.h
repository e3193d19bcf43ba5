/* drumfire: encrypted UDP networking for games. The C interface of the client.
 *
 * Functions that return a DrumfireStatus return DRUMFIRE_STATUS_OK, which is 0, on success. A handle identifies a client.
 * A client belongs to the thread that connected it, and does its I/O in drumfire_client_poll: call that once per frame.
 * README.md in the parent folder is an introduction, and examples/c/echo_client.c is a complete program.
 *
 * cbindgen generates this file from the Rust crate drumfire-ffi. Change it there.
 */

#ifndef DRUMFIRE_H
#define DRUMFIRE_H

#include <stddef.h>
#include <stdint.h>

// The maximum number of clients per process.
#define DRUMFIRE_CLIENTS_MAX 1024

// The maximum length of a text argument in bytes, without its NUL byte. Tokens are shorter than 1,000 bytes.
#define DRUMFIRE_TEXT_MAX_BYTES 4096

// A flag of `DrumfireSendOptions`: a receipt event will report the outcome of the message.
#define DRUMFIRE_SEND_RECEIPT 1

// A flag of `DrumfireSendOptions`: the message and all queued messages are sent immediately, without waiting for the
// next flush or poll.
#define DRUMFIRE_SEND_FLUSH 2

// The version of this interface. It increases when programs that were compiled with an older header no longer work.
#define DRUMFIRE_ABI_VERSION 1

// The result of a call. Zero is success. All other values are errors; after an error the call had no effect, unless
// the value's description says otherwise.
enum DrumfireStatus
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // The call succeeded.
  DRUMFIRE_STATUS_OK = 0,
  // A required pointer is null.
  DRUMFIRE_STATUS_NULL_POINTER = 1,
  // No client has this handle. It may have been freed.
  DRUMFIRE_STATUS_BAD_HANDLE = 2,
  // The client belongs to another thread: the thread that connected it.
  DRUMFIRE_STATUS_WRONG_THREAD = 3,
  // A setting or a number is not valid; `drumfire_last_error` names it.
  DRUMFIRE_STATUS_BAD_ARGUMENT = 4,
  // A text exceeds its maximum length or has no NUL byte.
  DRUMFIRE_STATUS_TEXT_TOO_LONG = 5,
  // A text is not UTF-8.
  DRUMFIRE_STATUS_BAD_TEXT = 6,
  // The server's address is invalid: write `203.0.113.9:7777` or `[2001:db8::1]:7777`.
  DRUMFIRE_STATUS_BAD_ADDRESS = 7,
  // The server's public key is invalid.
  DRUMFIRE_STATUS_BAD_KEY = 8,
  // The token is invalid, or is for another protocol id.
  DRUMFIRE_STATUS_BAD_TOKEN = 9,
  // The system refused a socket or provided no entropy.
  DRUMFIRE_STATUS_SYSTEM = 10,
  // There are already `DRUMFIRE_CLIENTS_MAX` clients: free one.
  DRUMFIRE_STATUS_TOO_MANY_CLIENTS = 11,
  // The connection is closing or closed.
  DRUMFIRE_STATUS_CLOSED = 12,
  // The connection's send memory is full: send less, or wait for `DRUMFIRE_EVENT_KIND_WRITABLE`.
  DRUMFIRE_STATUS_FULL = 13,
  // The message exceeds the limit of its mode or of the settings.
  DRUMFIRE_STATUS_TOO_LARGE = 14,
  // The buffer is too small. The required size was written, and the call had no other effect.
  DRUMFIRE_STATUS_BUFFER_TOO_SMALL = 15,
  // The server has not issued a resume token yet, or issues none.
  DRUMFIRE_STATUS_NO_RESUME_TOKEN = 16,
  // A bug in the library caused a panic, which was caught. The client of the call is closed, and its handle is
  // invalid.
  DRUMFIRE_STATUS_PANICKED = 17,
  // The client reconnects and has no connection now: send after the next `DRUMFIRE_EVENT_KIND_CONNECTED`.
  DRUMFIRE_STATUS_NOT_CONNECTED = 18,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum DrumfireStatus DrumfireStatus;
#else
typedef int32_t DrumfireStatus;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// The kind of an event. Events come in the order in which they happened. `Connected` or `ConnectFailed` is the first
// event, and `Disconnected` is the last event and comes once.
enum DrumfireEventKind
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // There is no event until the next poll.
  DRUMFIRE_EVENT_KIND_NONE = 0,
  // The connection is open, and the server has proved its identity.
  DRUMFIRE_EVENT_KIND_CONNECTED = 1,
  // The attempt to connect failed, and the client does not try again. `reason` says why, and `bytes` is a
  // description. After a refusal, `wait_ms` is the time after which the server may accept a new attempt, or zero.
  DRUMFIRE_EVENT_KIND_CONNECT_FAILED = 2,
  // A message arrived: `channel`, `bytes`.
  DRUMFIRE_EVENT_KIND_MESSAGE = 3,
  // The outcome of a message that was sent with a receipt: `receipt`, `outcome`.
  DRUMFIRE_EVENT_KIND_RECEIPT = 4,
  // The server gave up `count` messages on `channel` because their lifetime was over. They were skipped.
  DRUMFIRE_EVENT_KIND_SKIPPED = 5,
  // The connection ended or an attempt failed, and the client will try again: `reason`, the number of the attempt in
  // `count`, and the delay before it in `wait_ms`. `bytes` is the text of the server.
  DRUMFIRE_EVENT_KIND_RECONNECTING = 6,
  // The client has another local address, because it was rebound or the network changed. The connection continues.
  // `bytes` is the address as text, such as `192.0.2.7:50123`.
  DRUMFIRE_EVENT_KIND_PATH_CHANGED = 7,
  // The last actions of a connection that neither application closed: `bytes` is a text of many lines for a log.
  DRUMFIRE_EVENT_KIND_FLIGHT_RECORD = 8,
  // The connection is closed: `reason`, and the `code` of the application that closed it. `bytes` is the text of the
  // side that closed it. It is usually UTF-8, but nothing guarantees that. If the client tried to reconnect and gave
  // up, `reconnect_reason` says why the last attempt failed.
  DRUMFIRE_EVENT_KIND_DISCONNECTED = 9,
  // An event of a newer version of the library. Programs can ignore it.
  DRUMFIRE_EVENT_KIND_OTHER = 10,
  // The connection has room for messages again after a send returned `DRUMFIRE_STATUS_FULL`.
  DRUMFIRE_EVENT_KIND_WRITABLE = 11,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum DrumfireEventKind DrumfireEventKind;
#else
typedef uint32_t DrumfireEventKind;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// The reason why there is no connection. The numbers are part of the ABI. They start at 0 for connections that ended
// and at 30 for attempts that failed, and new ones are appended to their range.
enum DrumfireReason
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // The event has no reason.
  DRUMFIRE_REASON_NONE = 0,
  // This application closed the connection.
  DRUMFIRE_REASON_CLOSED_BY_CLIENT = 1,
  // The server's application closed the connection, with a code of its own.
  DRUMFIRE_REASON_CLOSED_BY_SERVER = 2,
  // The server is going away.
  DRUMFIRE_REASON_SERVER_SHUTDOWN = 3,
  // The same player connected again.
  DRUMFIRE_REASON_REPLACED = 4,
  // The lifetime of the session is over.
  DRUMFIRE_REASON_SESSION_ENDED = 5,
  // A channel with the policy `DRUMFIRE_WHEN_FULL_DISCONNECT` was full.
  DRUMFIRE_REASON_OVERFLOW = 6,
  // The server sent no packet for the idle timeout.
  DRUMFIRE_REASON_IDLE_TIMEOUT = 7,
  // The server did not acknowledge a packet within the unacknowledged timeout.
  DRUMFIRE_REASON_UNACKNOWLEDGED = 8,
  // One side violated the protocol, because of a bug or an attack.
  DRUMFIRE_REASON_PROTOCOL_VIOLATION = 9,
  // The keys reached their limit of packets or of forged packets: connect again.
  DRUMFIRE_REASON_KEY_LIMIT = 10,
  // The server does not know the connection any more, usually because it was restarted: connect again.
  DRUMFIRE_REASON_RESET = 11,
  // An internal error of the server.
  DRUMFIRE_REASON_SERVER_FAULT = 12,
  // All keys were invalidated on this side: connect again.
  DRUMFIRE_REASON_KEYS_INVALIDATED = 13,
  // This host cannot send to the server's address, or not any more: check the network and the address family.
  DRUMFIRE_REASON_UNREACHABLE = 14,
  // The server did not answer: check that it is running, and its address, key, and protocol id.
  DRUMFIRE_REASON_NO_ANSWER = 30,
  // The server supports other versions of the protocol.
  DRUMFIRE_REASON_VERSION_MISMATCH = 31,
  // The server has another protocol id: it serves another game or another build.
  DRUMFIRE_REASON_WRONG_PROTOCOL_ID = 32,
  // The server is full.
  DRUMFIRE_REASON_SERVER_FULL = 33,
  // The server does not admit this player.
  DRUMFIRE_REASON_BANNED = 34,
  // The token is expired: get a new one.
  DRUMFIRE_REASON_TOKEN_EXPIRED = 35,
  // The token is for another server.
  DRUMFIRE_REASON_TOKEN_FOREIGN = 36,
  // The token was already used: get a new one.
  DRUMFIRE_REASON_TOKEN_USED = 37,
  // The server redirects this player to another server, which `bytes` of the event names.
  DRUMFIRE_REASON_REDIRECT = 38,
  // The server's public key is invalid.
  DRUMFIRE_REASON_BAD_SERVER_KEY = 39,
  // The server refused for a reason that this version does not know.
  DRUMFIRE_REASON_REFUSED = 40,
  // This side has no room or no entropy for a connection.
  DRUMFIRE_REASON_LOCAL_FAULT = 41,
  // The server requires a token, and there was none.
  DRUMFIRE_REASON_TOKEN_MISSING = 42,
  // The server cannot decrypt the token: its issuer must use a token key that the server has.
  DRUMFIRE_REASON_TOKEN_UNREADABLE = 43,
  // The server accepts no tokens: connect without one.
  DRUMFIRE_REASON_TOKEN_UNEXPECTED = 44,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum DrumfireReason DrumfireReason;
#else
typedef uint32_t DrumfireReason;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// The outcome of a message with a receipt.
enum DrumfireOutcome
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // The event is not about a message.
  DRUMFIRE_OUTCOME_NONE = 0,
  // The server's connection received the message.
  DRUMFIRE_OUTCOME_ACKNOWLEDGED = 1,
  // The packet that carried the message was declared lost, or the connection ended before an acknowledgment arrived.
  DRUMFIRE_OUTCOME_LOST = 2,
  // The message was given up: its lifetime was over, a newer message replaced it, or there was no room. It may have
  // arrived.
  DRUMFIRE_OUTCOME_EXPIRED = 3,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum DrumfireOutcome DrumfireOutcome;
#else
typedef uint32_t DrumfireOutcome;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// The state of a client.
enum DrumfireState
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // The client waits for the server. Messages can be sent already on the first attempt, but not on a reconnect.
  DRUMFIRE_STATE_CONNECTING = 0,
  // The connection is open.
  DRUMFIRE_STATE_CONNECTED = 1,
  // The client will connect again. Messages can be sent after it is connected.
  DRUMFIRE_STATE_RECONNECTING = 2,
  // The connection ended, or the attempt to connect failed.
  DRUMFIRE_STATE_CLOSED = 3,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum DrumfireState DrumfireState;
#else
typedef uint32_t DrumfireState;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// The delivery guarantee of a message.
enum DrumfireMode
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // The message is delivered at most once, in any order. Use it for effects and voice.
  DRUMFIRE_MODE_UNRELIABLE = 1,
  // The message is delivered at most once, and never after a newer one. Use it for snapshots.
  DRUMFIRE_MODE_UNRELIABLE_SEQUENCED = 2,
  // The message is delivered exactly once, in any order. Use it for hits and pick-ups.
  DRUMFIRE_MODE_RELIABLE_UNORDERED = 3,
  // The message is delivered exactly once, in the order of the channel. Use it for chat and inputs.
  DRUMFIRE_MODE_RELIABLE_ORDERED = 4,
  // The newest message of the channel is always delivered. Older ones may be skipped. Use it for a single state.
  DRUMFIRE_MODE_RELIABLE_SEQUENCED = 5,
  // The newest message of each key is always delivered. It has at most 1,024 bytes. Use it for the state of many objects.
  DRUMFIRE_MODE_RELIABLE_LATEST = 6,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum DrumfireMode DrumfireMode;
#else
typedef uint32_t DrumfireMode;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// The priority of a message.
enum DrumfirePriority
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // The message is sent when no urgent message waits. This is the default.
  DRUMFIRE_PRIORITY_NORMAL = 0,
  // The message is sent before all other messages.
  DRUMFIRE_PRIORITY_URGENT = 1,
  // The message is sent when no urgent or normal message waits.
  DRUMFIRE_PRIORITY_LOW = 2,
  // The message is sent when no other message waits. Use it for assets, replays, and logs.
  DRUMFIRE_PRIORITY_BULK = 3,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum DrumfirePriority DrumfirePriority;
#else
typedef uint32_t DrumfirePriority;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// The action when the connection has no memory for a message.
enum DrumfireWhenFull
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // The message is not queued, and `drumfire_client_send` returns `DRUMFIRE_STATUS_FULL`.
  DRUMFIRE_WHEN_FULL_BLOCK = 0,
  // The message replaces the oldest messages of the channel that were not sent yet.
  DRUMFIRE_WHEN_FULL_DROP_OLDEST = 1,
  // The new message is dropped.
  DRUMFIRE_WHEN_FULL_DROP_NEWEST = 2,
  // The connection is closed.
  DRUMFIRE_WHEN_FULL_DISCONNECT = 3,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum DrumfireWhenFull DrumfireWhenFull;
#else
typedef uint32_t DrumfireWhenFull;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// The server of a client, and the settings of its connection. Start with a structure that is all zero: zero selects
// the default of a field.
//
// There are three ways to name the server: `token` alone, issued by the game's backend; `server` and `server_key`; or
// `server` and `dev` for development.
typedef struct {
  // The address and port of the server: `203.0.113.9:7777` or `[2001:db8::1]:7777`. Host names are not resolved.
  // Null with a token, which contains the address.
  const char *server;
  // The public key of the server, `drumfire_public_...`. Null with `dev`, and with a token, which contains the key.
  const char *server_key;
  // A connect token from the game's backend, or a resume token, `drumfire_connect_...`. Null for none.
  const char *token;
  // Nonzero: the server uses the development key, which is public. Use it for development only.
  uint32_t dev;
  // The time for which the client tries to reconnect after its connection ended, in milliseconds, from 1,000 to
  // 86,400,000. Zero: it does not reconnect.
  uint32_t reconnect_within_ms;
  // The connection ends after this time without a packet from the server, in milliseconds, at least 1,000. Zero:
  // 30,000.
  uint32_t idle_timeout_ms;
  // The connection ends when a packet stays unacknowledged for this time, in milliseconds, at least 1,000. Zero:
  // 10,000.
  uint32_t unacknowledged_timeout_ms;
  // Identifies the game and its build. It must equal the protocol id of the server.
  uint64_t protocol_id;
  // The maximum size of all messages that wait to be sent or are not acknowledged, in bytes, at least 4,096. Zero:
  // 1,048,576.
  size_t send_memory_bytes;
  // The maximum size of all messages that wait for the application, in bytes, at least 4,096. Zero: 2,097,152.
  size_t receive_memory_bytes;
  // The maximum size of a reliable message, in bytes, from 1,024 to 16 MiB, and at most a quarter of
  // `send_memory_bytes` and of `receive_memory_bytes`. Zero: 65,536, or that quarter if it is less. Use the same value
  // on the server.
  size_t message_max_bytes;
  // The size of the receive buffer to request from the system, in bytes. Zero: 262,144, or the default of the system
  // if that is larger.
  size_t receive_buffer_bytes;
  // A hello for the application of the server, such as a user name, at most 256 bytes. The server receives it after every
  // reconnect too. Do not put a secret into it. Null for none.
  const char *hello;
} DrumfireConfig;

// A handle of a client. Zero is never a valid handle. A number is used again only after 4,294,967,295 other clients
// were connected.
typedef uint64_t DrumfireClient;

// An event. Fields that the description of its kind does not mention are zero.
typedef struct {
  // The kind, which selects the fields that are used.
  DrumfireEventKind kind;
  // The reason why a connection ended or an attempt failed.
  DrumfireReason reason;
  // The reason why the last attempt to reconnect failed, if a connection ended and the client gave up.
  DrumfireReason reconnect_reason;
  // The outcome of a message.
  DrumfireOutcome outcome;
  // The code from the application that closed the connection.
  uint32_t code;
  // The number of messages that were skipped, or the number of the attempt.
  uint32_t count;
  // A delay in milliseconds, see the kind.
  uint32_t wait_ms;
  // The channel of the message.
  uint16_t channel;
  // The receipt number that `drumfire_client_send` returned for the message.
  uint64_t receipt;
  // The bytes of the event. Null if `bytes_count` is zero. They do not end with a NUL byte.
  const uint8_t *bytes;
  // The number of bytes.
  size_t bytes_count;
} DrumfireEvent;

// The options of a message. `mode` is required; zero selects the default of the other fields.
typedef struct {
  // A value of `DrumfireMode`.
  uint32_t mode;
  // A value of `DrumfirePriority`.
  uint32_t priority;
  // The sum of `DRUMFIRE_SEND_RECEIPT` and `DRUMFIRE_SEND_FLUSH`, either of them, or 0.
  uint32_t flags;
  // The message is given up after this time, in milliseconds. Zero: never.
  uint32_t lifetime_ms;
  // The key of the value in the mode `DRUMFIRE_MODE_RELIABLE_LATEST`.
  uint64_t key;
} DrumfireSendOptions;

// The options of a channel. All zero are the defaults.
typedef struct {
  // The share of the channel in the send rate, relative to other channels of the same priority: 1 to 255, or zero for 1.
  uint32_t weight;
  // The number of later packets that repeat a reliable message of up to 128 bytes, from 0 to 3.
  uint32_t redundancy;
  // A value of `DrumfireWhenFull`.
  uint32_t when_full;
} DrumfireChannelOptions;

// Counters since the client was created, and the last measurement of its path.
typedef struct {
  // The number of datagrams received from the socket.
  uint64_t datagrams_received;
  // The number of received datagrams that the protocol dropped: forged, duplicated, late, or for another client.
  uint64_t datagrams_dropped;
  // The number of datagrams sent.
  uint64_t datagrams_sent;
  // The number of messages put into packets, including retransmissions.
  uint64_t messages_sent;
  // The number of messages put into packets again after a loss.
  uint64_t messages_resent;
  // The number of messages delivered to this application.
  uint64_t messages_delivered;
  // The number of packets declared lost.
  uint64_t packets_lost;
  // 1 if the following fields are measured. 0 if there is no measurement yet; then they are zero.
  uint64_t has_path;
  // The time of the measurement, in nanoseconds on the client's clock, which `drumfire_client_time` reads.
  uint64_t taken_at_ns;
  // The smoothed round-trip time, in microseconds.
  uint64_t round_trip_us;
  // The mean deviation of the round-trip time, in microseconds.
  uint64_t jitter_us;
  // The shortest recent round-trip time, in microseconds. Zero if unknown.
  uint64_t round_trip_min_us;
  // The time by which the server's clock is ahead of the client's clock, in nanoseconds. At `taken_at_ns`, the
  // server's clock showed `taken_at_ns + clock_offset_ns`.
  int64_t clock_offset_ns;
  // The maximum error of `clock_offset_ns`, in nanoseconds. Zero if the offset is unknown.
  uint64_t clock_error_ns;
  // The number of recently sent ack-eliciting packets.
  uint64_t recent_packets_sent;
  // The number of recently sent packets that were declared lost.
  uint64_t recent_packets_lost;
  // The number of recently received packets.
  uint64_t recent_packets_received;
  // The number of recent packets of the server that were not received, or not yet.
  uint64_t recent_packets_missing;
  // The recent delivery rate of the path, in bytes per second. Zero if unknown.
  uint64_t bandwidth_bytes_per_second;
  // The memory of messages that wait or are unacknowledged, in bytes, including the overhead per message.
  uint64_t send_memory_bytes;
  // The size of the largest datagram that the path carries, in bytes.
  uint64_t datagram_max_bytes;
  // The number of datagrams that the kernel dropped since the client was created because the receive buffer was
  // full. Poll more often, or raise `receive_buffer_bytes`. Zero on platforms without such a counter.
  uint64_t kernel_dropped;
} DrumfireStats;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Starts to connect and writes the handle of the new client. The result is an event: `Connected`, or `ConnectFailed`
// after at most 5 seconds unless the client reconnects. The client belongs to the calling thread. Free it with
// `drumfire_client_free`, also after the connection ended.
//
// # Safety
//
// Each text of `config` is null or ends with a NUL byte.
DrumfireStatus drumfire_client_connect(const DrumfireConfig *config,
                                       DrumfireClient *client);

// Does the I/O: receives datagrams and sends what is due. Waits up to `timeout_ms` milliseconds for an event; zero
// does not wait. Then take the events with `drumfire_client_receive`. Events that were not taken come first after the
// next poll. Call it once per frame, and at least ten times per second.
DrumfireStatus drumfire_client_poll(DrumfireClient client,
                                    uint32_t timeout_ms);

// Takes the next event. Its kind is `DRUMFIRE_EVENT_KIND_NONE` if there is no event until the next poll. Its bytes are
// borrowed: they are valid until the next `drumfire_client_receive`, `_receive_into`, `_poll`, or `_free` of this
// client. It does no I/O.
DrumfireStatus drumfire_client_receive(DrumfireClient client,
                                       DrumfireEvent *event);

// Takes the next event and copies its bytes into a buffer of `capacity` bytes. If they do not fit, it returns
// `DRUMFIRE_STATUS_BUFFER_TOO_SMALL` and writes their number to `bytes_count`; the next call returns the same event. A
// null buffer with a capacity of 0 queries the size.
//
// # Safety
//
// `buffer` is null or points to `capacity` writable bytes.
DrumfireStatus drumfire_client_receive_into(DrumfireClient client,
                                            DrumfireEvent *event,
                                            uint8_t *buffer,
                                            size_t capacity);

// Queues a message for the server, with a copy of the bytes. The next flush or poll sends it. `receipt` may be null.
// Otherwise it receives the number that identifies the message's outcome, or 0 if `options` requests no receipt.
//
// # Safety
//
// `bytes` is null or points to `bytes_count` readable bytes.
DrumfireStatus drumfire_client_send(DrumfireClient client,
                                    uint16_t channel,
                                    const uint8_t *bytes,
                                    size_t bytes_count,
                                    const DrumfireSendOptions *options,
                                    uint64_t *receipt);

// Sends all messages that were queued since the last flush or poll. Call it at the end of a frame.
DrumfireStatus drumfire_client_flush(DrumfireClient client);

// Sets the options of a channel from the next flush or poll on, for this connection and for reconnects.
DrumfireStatus drumfire_client_set_channel(DrumfireClient client,
                                           uint16_t channel,
                                           const DrumfireChannelOptions *options);

// Forgets the last message of a key on a channel in the mode `DRUMFIRE_MODE_RELIABLE_LATEST`. Call it when the thing
// that the key names is gone.
DrumfireStatus drumfire_client_forget_key(DrumfireClient client,
                                          uint16_t channel,
                                          uint64_t key);

// Writes the state of the client as of the last event that was taken.
DrumfireStatus drumfire_client_state(DrumfireClient client, DrumfireState *state);

// Writes the counters of the client and the last measurement of its path. Requests a new measurement, which is
// available after the events of the next poll were taken.
DrumfireStatus drumfire_client_stats(DrumfireClient client,
                                     DrumfireStats *stats);

// Writes the time of the client's clock in nanoseconds since an unspecified start. The `clock_offset_ns` in
// `DrumfireStats` is relative to this clock.
DrumfireStatus drumfire_client_time(DrumfireClient client, uint64_t *nanoseconds);

// Writes the newest resume token of this player and a NUL byte into a buffer of `capacity` bytes. Use it as
// `DrumfireConfig.token` to come back to this server, also after the connection is lost. `needed` may be null.
// Otherwise it receives the size of the text in bytes, including the NUL byte. Returns
// `DRUMFIRE_STATUS_NO_RESUME_TOKEN` if the server issued no token. Keep the token secret: it admits its holder as this
// player, once, for ten minutes.
//
// # Safety
//
// `buffer` is null or points to `capacity` writable bytes.
DrumfireStatus drumfire_client_resume_token(DrumfireClient client,
                                            char *buffer,
                                            size_t capacity,
                                            size_t *needed);

// Continues on a new socket. Call it when the device changed its network or woke up. The connection migrates, and no
// reliable message is lost.
DrumfireStatus drumfire_client_rebind(DrumfireClient client);

// Closes the connection with the next flush or poll. `code` is a number of the application, and `text` is a line of up
// to 128 bytes for the server's log, or null. `Disconnected` is the last event, also here. The handle stays valid
// until `drumfire_client_free`.
//
// # Safety
//
// `text` is null or ends with a NUL byte.
DrumfireStatus drumfire_client_close(DrumfireClient client,
                                     uint32_t code,
                                     const char *text);

// Frees the client. If the connection is open, it is closed first, and the server is notified once. The handle and the
// bytes of the last event become invalid. Any thread may call it, so that a finalizer can. If the client's own thread
// is in a call, that call completes, and then the client is freed.
DrumfireStatus drumfire_client_free(DrumfireClient client);

// Returns the `DRUMFIRE_ABI_VERSION` of the library. A program that loads the library at run time compares it with its
// own.
uint32_t drumfire_abi_version(void);

// Returns the version of the library, such as `0.1.0`. The text is valid forever.
const char *drumfire_version(void);

// Returns a description of a status. The text is valid forever.
const char *drumfire_status_text(int32_t status);

// Returns a description of a `DrumfireReason`. The text is valid forever.
const char *drumfire_reason_text(uint32_t reason);

// Returns a description of the last failed call of this thread, in one line. It is empty before the first failure. The
// text is valid until the next failed call of this thread.
const char *drumfire_last_error(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* DRUMFIRE_H */
