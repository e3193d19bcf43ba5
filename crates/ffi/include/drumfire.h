/* drumfire: encrypted, pseudo-reliable UDP for games. The C interface of the client.
 *
 * Every function that answers a DrumfireStatus does so with DRUMFIRE_STATUS_OK, which is 0, when all is well. A client is named by
 * a handle, belongs to the thread that connected it, and does its I/O in drumfire_client_poll: call that once per frame. README.md
 * beside this folder teaches it, examples/c/echo_client.c is a whole program.
 *
 * This file is made by cbindgen from the Rust crate drumfire-ffi: change it there.
 */

#ifndef DRUMFIRE_H
#define DRUMFIRE_H

#include <stddef.h>
#include <stdint.h>

// Clients that may live at once.
#define DRUMFIRE_CLIENTS_MAX 1024

// Bytes of the longest text that is read, without the NUL byte that ends it. Tokens have less than a thousand.
#define DRUMFIRE_TEXT_MAX_BYTES 4096

// A flag of `DrumfireSendOptions`: one event will tell what became of the message.
#define DRUMFIRE_SEND_RECEIPT 1

// A flag of `DrumfireSendOptions`: the message leaves at once, with all that was taken before, and does not wait for the next
// flush or poll.
#define DRUMFIRE_SEND_FLUSH 2

// The version of this interface: it grows when a program that was compiled with an older header cannot go on with the library.
#define DRUMFIRE_ABI_VERSION 1

// How a call went. Zero is well, everything else is an error after which nothing was done unless its line says otherwise.
enum DrumfireStatus
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // Done.
  DRUMFIRE_STATUS_OK = 0,
  // A pointer that must not be null is.
  DRUMFIRE_STATUS_NULL_POINTER = 1,
  // No client has this handle, or none any more.
  DRUMFIRE_STATUS_BAD_HANDLE = 2,
  // The client belongs to another thread: the one that connected it.
  DRUMFIRE_STATUS_WRONG_THREAD = 3,
  // A setting or a number is none that there is; `drumfire_last_error` names it.
  DRUMFIRE_STATUS_BAD_ARGUMENT = 4,
  // A text is longer than it may be, or has no end.
  DRUMFIRE_STATUS_TEXT_TOO_LONG = 5,
  // A text is not UTF-8.
  DRUMFIRE_STATUS_BAD_TEXT = 6,
  // The server's address is not one: say `203.0.113.9:7777` or `[2001:db8::1]:7777`.
  DRUMFIRE_STATUS_BAD_ADDRESS = 7,
  // The server's public key is not one.
  DRUMFIRE_STATUS_BAD_KEY = 8,
  // The token is not one, or is for another protocol id.
  DRUMFIRE_STATUS_BAD_TOKEN = 9,
  // The system refused a socket or gave no entropy.
  DRUMFIRE_STATUS_SYSTEM = 10,
  // There are `DRUMFIRE_CLIENTS_MAX` clients: free one.
  DRUMFIRE_STATUS_TOO_MANY_CLIENTS = 11,
  // The connection is closing or over.
  DRUMFIRE_STATUS_CLOSED = 12,
  // The connection's send memory is full: send less, or later.
  DRUMFIRE_STATUS_FULL = 13,
  // The message is longer than its mode or the settings allow.
  DRUMFIRE_STATUS_TOO_LARGE = 14,
  // The buffer is too small; how large it must be was written, and nothing was taken.
  DRUMFIRE_STATUS_BUFFER_TOO_SMALL = 15,
  // There is none: the server gave no token to come back with, or not yet.
  DRUMFIRE_STATUS_NOT_THERE = 16,
  // A fault of the library, which was caught. The client it happened to is closed, and its handle is stale.
  DRUMFIRE_STATUS_PANICKED = 17,
  // The client reconnects by itself and has no connection now: send after its next `DRUMFIRE_EVENT_KIND_CONNECTED`.
  DRUMFIRE_STATUS_NOT_CONNECTED = 18,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum DrumfireStatus DrumfireStatus;
#else
typedef int32_t DrumfireStatus;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// What an event tells. In the order it happened: `Connected` or `ConnectFailed` first, `Disconnected` last and once.
enum DrumfireEventKind
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // There is none until the next poll.
  DRUMFIRE_EVENT_KIND_NONE = 0,
  // The server is there and proved itself.
  DRUMFIRE_EVENT_KIND_CONNECTED = 1,
  // There is no connection, and will be none: `reason`; `bytes` are a line for people. After a refusal `wait_ms` says when to
  // try again, or is zero.
  DRUMFIRE_EVENT_KIND_CONNECT_FAILED = 2,
  // A message arrived: `channel`, `bytes`.
  DRUMFIRE_EVENT_KIND_MESSAGE = 3,
  // What became of a message sent with a receipt: `receipt`, `outcome`.
  DRUMFIRE_EVENT_KIND_RECEIPT = 4,
  // Messages that the server gave up, because their time was over, were left out here: `channel`, `count`.
  DRUMFIRE_EVENT_KIND_SKIPPED = 5,
  // The connection ended, or an attempt came to nothing, and the client begins anew by itself: `reason`, the attempt's number
  // as `count`, `wait_ms` before it begins; `bytes` are what the server said.
  DRUMFIRE_EVENT_KIND_RECONNECTING = 6,
  // The last attempt to have the connection back failed: `reason`; `bytes` are a line for people. `Disconnected` follows.
  DRUMFIRE_EVENT_KIND_RECONNECT_FAILED = 7,
  // What happened last to a connection that ended in another way than the applications wanted: `bytes` are a text of many
  // lines, for a log.
  DRUMFIRE_EVENT_KIND_FLIGHT_RECORD = 8,
  // The connection is over: `reason`, the closing application's `code`; `bytes` are what the closing side said, UTF-8 by
  // custom only.
  DRUMFIRE_EVENT_KIND_DISCONNECTED = 9,
  // Something of a newer version; it may be left alone.
  DRUMFIRE_EVENT_KIND_OTHER = 10,
  // There is room again for messages, after a send was answered `DRUMFIRE_STATUS_FULL`.
  DRUMFIRE_EVENT_KIND_WRITABLE = 11,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum DrumfireEventKind DrumfireEventKind;
#else
typedef uint32_t DrumfireEventKind;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// Why there is no connection. The numbers are part of the ABI; new ones come at the end of their tens.
enum DrumfireReason
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // The event has none.
  DRUMFIRE_REASON_NONE = 0,
  // This application closed it.
  DRUMFIRE_REASON_CLOSED_HERE = 1,
  // The server's application closed it, with a code of its own.
  DRUMFIRE_REASON_CLOSED_BY_SERVER = 2,
  // The server is going away.
  DRUMFIRE_REASON_SERVER_SHUTDOWN = 3,
  // The same player connected anew.
  DRUMFIRE_REASON_REPLACED = 4,
  // The session's time is over.
  DRUMFIRE_REASON_SESSION_ENDED = 5,
  // A channel that must not lose anything was full.
  DRUMFIRE_REASON_OVERFLOW = 6,
  // Nothing was heard of the server for the silent timeout.
  DRUMFIRE_REASON_SILENT = 7,
  // The server acknowledged nothing for the unacknowledged timeout.
  DRUMFIRE_REASON_UNACKNOWLEDGED = 8,
  // One of the two broke the protocol: a fault or an attack.
  DRUMFIRE_REASON_PROTOCOL_BROKEN = 9,
  // The keys are used up, or too many forged packets came: connect again.
  DRUMFIRE_REASON_KEY_LIMIT = 10,
  // The server does not know the connection any more, it was restarted: connect again.
  DRUMFIRE_REASON_RESET = 11,
  // A fault on the server.
  DRUMFIRE_REASON_SERVER_FAULT = 12,
  // All keys were invalidated on this side: connect again.
  DRUMFIRE_REASON_KEYS_INVALIDATED = 13,
  // This host cannot send to the server's address, or not any more: is it on a network, and is the address of the right family?
  DRUMFIRE_REASON_UNREACHABLE = 14,
  // Nobody answered: is the server there, and are its address, key and protocol id right?
  DRUMFIRE_REASON_NO_ANSWER = 30,
  // The server speaks other versions of the protocol.
  DRUMFIRE_REASON_VERSION_MISMATCH = 31,
  // The server has another protocol id: it is another game's or another build's.
  DRUMFIRE_REASON_WRONG_PROTOCOL_ID = 32,
  // The server is full.
  DRUMFIRE_REASON_SERVER_FULL = 33,
  // The server does not admit this player.
  DRUMFIRE_REASON_BANNED = 34,
  // The token's time is over: get a new one.
  DRUMFIRE_REASON_TOKEN_EXPIRED = 35,
  // The token is for another server.
  DRUMFIRE_REASON_TOKEN_FOREIGN = 36,
  // The token was used: get a new one.
  DRUMFIRE_REASON_TOKEN_USED = 37,
  // Another server takes this player; the event's bytes say which.
  DRUMFIRE_REASON_TRY_THERE = 38,
  // The server's public key is not one that anybody has.
  DRUMFIRE_REASON_BAD_SERVER_KEY = 39,
  // The server refuses for a reason of a newer version.
  DRUMFIRE_REASON_REFUSED = 40,
  // This side has no room or no entropy for a connection.
  DRUMFIRE_REASON_LOCAL_FAULT = 41,
  // The server admits only players with a token, and there was none.
  DRUMFIRE_REASON_TOKEN_MISSING = 42,
  // The server cannot read the token: its issuer needs a token key that the server has.
  DRUMFIRE_REASON_TOKEN_UNREADABLE = 43,
  // The server takes no tokens: connect without one.
  DRUMFIRE_REASON_TOKEN_UNEXPECTED = 44,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum DrumfireReason DrumfireReason;
#else
typedef uint32_t DrumfireReason;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// What became of a message.
enum DrumfireOutcome
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // The event is about no message.
  DRUMFIRE_OUTCOME_NONE = 0,
  // The server's connection has it.
  DRUMFIRE_OUTCOME_ACKNOWLEDGED = 1,
  // The packet that carried it is lost, as far as can be told, or the connection ended before anybody knew.
  DRUMFIRE_OUTCOME_LOST = 2,
  // It was given up: its time was over, a newer one took its place, or there was no room. It may have arrived.
  DRUMFIRE_OUTCOME_EXPIRED = 3,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum DrumfireOutcome DrumfireOutcome;
#else
typedef uint32_t DrumfireOutcome;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// How far a client has come.
enum DrumfireState
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // It waits for the server's answer. Messages may be sent already, except by a client that reconnects.
  DRUMFIRE_STATE_CONNECTING = 0,
  // The server is there.
  DRUMFIRE_STATE_CONNECTED = 1,
  // It connects again by itself. Messages can be sent once it is connected.
  DRUMFIRE_STATE_RECONNECTING = 2,
  // There is no connection any more, or never was one.
  DRUMFIRE_STATE_CLOSED = 3,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum DrumfireState DrumfireState;
#else
typedef uint32_t DrumfireState;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// What is promised of a message.
enum DrumfireMode
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // At most once, in any order: effects, voice.
  DRUMFIRE_MODE_UNRELIABLE = 1,
  // At most once, never an older one after a newer: snapshots.
  DRUMFIRE_MODE_UNRELIABLE_SEQUENCED = 2,
  // Exactly once, in any order: hits, pick-ups.
  DRUMFIRE_MODE_RELIABLE_UNORDERED = 3,
  // Exactly once, in the order of its channel: chat, inputs.
  DRUMFIRE_MODE_RELIABLE_ORDERED = 4,
  // The newest of a channel always arrives, older ones may be left out: one state.
  DRUMFIRE_MODE_RELIABLE_SEQUENCED = 5,
  // Of every key the newest always arrives, at most 1,024 bytes: the state of many things.
  DRUMFIRE_MODE_RELIABLE_LATEST = 6,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum DrumfireMode DrumfireMode;
#else
typedef uint32_t DrumfireMode;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// What a message goes before. Zero is as most messages.
enum DrumfirePriority
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // As most messages.
  DRUMFIRE_PRIORITY_NORMAL = 0,
  // Before everything else.
  DRUMFIRE_PRIORITY_URGENT = 1,
  // When nothing normal waits.
  DRUMFIRE_PRIORITY_LOW = 2,
  // When nothing else waits: assets, replays, logs.
  DRUMFIRE_PRIORITY_BULK = 3,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum DrumfirePriority DrumfirePriority;
#else
typedef uint32_t DrumfirePriority;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// What becomes of a channel's message for which there is no memory.
enum DrumfireWhenFull
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // It is not taken, and `drumfire_client_send` answers `DRUMFIRE_STATUS_FULL`.
  DRUMFIRE_WHEN_FULL_BLOCK = 0,
  // It takes the place of the channel's oldest messages that were not sent yet.
  DRUMFIRE_WHEN_FULL_DROP_OLDEST = 1,
  // It is dropped.
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

// Where to connect, and how. Begin with one that is all zero: each field that stays zero is as its line says.
//
// One of three says which server it is: `token` alone, as the game's backend issued it; `server` and `server_key`; or `server`
// and `dev`, for first steps.
typedef struct {
  // The server's address and port, `203.0.113.9:7777` or `[2001:db8::1]:7777`; no names. Null with a token, which says it.
  const char *server;
  // The server's public key, `drumfire_public_...`. Null with a token, which says it, and with `dev`.
  const char *server_key;
  // A connect token of the game's backend, or one to come back with, `drumfire_connect_...`. Null for none.
  const char *token;
  // Not zero: the server has the development key, which everybody knows. For first steps and tests alone.
  uint32_t dev;
  // Milliseconds for which the client tries to come back by itself when its connection ends, 1,000 to 86,400,000; zero: it
  // does not.
  uint32_t reconnect_within_ms;
  // The connection ends when the server was silent for so many milliseconds, at least 1,000; zero: 30,000.
  uint32_t silent_timeout_ms;
  // The connection ends when a packet was not acknowledged for so many milliseconds, at least 1,000; zero: 10,000.
  uint32_t unacknowledged_timeout_ms;
  // The game and its build, as the server has it.
  uint64_t protocol_id;
  // Bytes of messages that may wait to be sent, at least 4,096; zero: 262,144.
  size_t send_memory_bytes;
  // Bytes of messages that may wait for the application, at least 4,096; zero: 262,144.
  size_t receive_memory_bytes;
  // Bytes of the longest reliable message, 1,024 to 16 MiB, at most a quarter of either memory; zero: 65,536. The server
  // should have the same.
  size_t message_max_bytes;
  // Receive buffer to ask the system for, in bytes; zero: 262,144, or the system's default where that is larger.
  size_t receive_buffer_bytes;
} DrumfireConfig;

// Names a client. Zero names none, and no number names two clients, until 4,294,967,295 more were connected.
typedef uint64_t DrumfireClient;

// One event. Fields that its kind does not name are zero.
typedef struct {
  // What it tells.
  DrumfireEventKind kind;
  // Why something ended or failed.
  DrumfireReason reason;
  // What became of a message.
  DrumfireOutcome outcome;
  // The closing application's own number.
  uint32_t code;
  // How many, or the number of the attempt.
  uint32_t count;
  // Milliseconds.
  uint32_t wait_ms;
  // On which channel.
  uint16_t channel;
  // By which the message is known that an outcome is about.
  uint64_t receipt;
  // Bytes that follow; null where `bytes_count` is zero. No NUL byte ends them.
  const uint8_t *bytes;
  // How many.
  size_t bytes_count;
} DrumfireEvent;

// How to send one message. `mode` must be said; all else may be zero.
typedef struct {
  // One of `DrumfireMode`.
  uint32_t mode;
  // One of `DrumfirePriority`.
  uint32_t priority;
  // Any of `DRUMFIRE_SEND_RECEIPT` and `DRUMFIRE_SEND_FLUSH`, added.
  uint32_t flags;
  // Given up after so many milliseconds; zero: never.
  uint32_t lifetime_ms;
  // Whose value it is, in the mode `DRUMFIRE_MODE_RELIABLE_LATEST`.
  uint64_t key;
} DrumfireSendOptions;

// How the messages of a channel are sent. All zero is what a channel has anyway.
typedef struct {
  // How many bytes the channel may send in its turn, compared to others of the same priority, 1 to 255; zero: 1.
  uint32_t weight;
  // In how many more packets its reliable messages of up to 128 bytes ride again, 0 to 3.
  uint32_t redundancy;
  // One of `DrumfireWhenFull`.
  uint32_t when_full;
} DrumfireChannelOptions;

// What a client counted since it was made, and what was last measured of its path.
typedef struct {
  // Datagrams taken from the socket.
  uint64_t datagrams_received;
  // Of those, dropped by the protocol: forged, repeated, late, not for this client.
  uint64_t datagrams_dropped;
  // Datagrams sent.
  uint64_t datagrams_sent;
  // Messages put into packets, without resends.
  uint64_t messages_sent;
  // Messages put into packets again.
  uint64_t messages_resent;
  // Messages handed to this application.
  uint64_t messages_delivered;
  // Packets found lost.
  uint64_t packets_lost;
  // 1 when the rest was measured, 0 when there is nothing yet; then all of it is zero.
  uint64_t has_path;
  // When it was measured, on the client's clock, in nanoseconds; `drumfire_client_time` reads that clock.
  uint64_t taken_at_ns;
  // The round trip, smoothed, in microseconds.
  uint64_t round_trip_us;
  // Its mean deviation, in microseconds.
  uint64_t jitter_us;
  // The shortest round trip lately, in microseconds; zero when none is known.
  uint64_t round_trip_min_us;
  // How far the server's clock is ahead of the client's, in nanoseconds: what it showed at `taken_at_ns` is that and so much
  // more.
  int64_t clock_offset_ns;
  // It is no further from the truth than so many nanoseconds; zero when it is not known.
  uint64_t clock_error_ns;
  // Packets sent lately that ask for an ack.
  uint64_t recent_packets_sent;
  // Packets found lost lately.
  uint64_t recent_packets_lost;
  // Packets that came lately.
  uint64_t recent_packets_received;
  // Packets of the server that did not come lately, or not yet.
  uint64_t recent_packets_missing;
  // What the path was seen to deliver lately, in bytes per second; zero when it is not known.
  uint64_t bandwidth_bytes_per_second;
  // Bytes of messages that wait or were not acknowledged, charges included.
  uint64_t send_memory_bytes;
  // Bytes of the largest datagram that the path carries.
  uint64_t datagram_max_bytes;
  // Datagrams that the kernel dropped because the receive buffer was full, counted as long as the client lives: poll more often,
  // or raise `receive_buffer_bytes`. Zero where the platform keeps no count.
  uint64_t kernel_dropped;
} DrumfireStats;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Begins to connect and writes the new client's handle. What comes of it is an event: `Connected`, or `ConnectFailed` after 5 s
// at most, unless the client is to try again. The client belongs to the calling thread. Free it with `drumfire_client_free`,
// whatever becomes of the connection.
//
// # Safety
//
// Each text of `config` is null or ends with a NUL byte.
DrumfireStatus drumfire_client_connect(const DrumfireConfig *config,
                                       DrumfireClient *client);

// Does the I/O: takes in what arrived and sends what is due, waiting for an event for `timeout_ms` milliseconds at most, or not
// at all with 0. Then take the events with `drumfire_client_receive`; those that were not taken stay first. Call it once per
// frame, and at least ten times per second.
DrumfireStatus drumfire_client_poll(DrumfireClient client,
                                    uint32_t timeout_ms);

// Takes the next event; its kind is `DRUMFIRE_EVENT_KIND_NONE` when there is none until the next poll. Its bytes are borrowed:
// they stay until the next `drumfire_client_receive`, `_receive_into`, `_poll` or `_free` of this client. It does no I/O.
DrumfireStatus drumfire_client_receive(DrumfireClient client,
                                       DrumfireEvent *event);

// Takes the next event and copies its bytes into a buffer of `capacity` bytes. When they do not fit, it answers
// `DRUMFIRE_STATUS_BUFFER_TOO_SMALL`, the event says in `bytes_count` how many there are, and the same event comes again. Null
// with a capacity of 0 asks for the size alone.
//
// # Safety
//
// `buffer` is null or leads to `capacity` writable bytes.
DrumfireStatus drumfire_client_receive_into(DrumfireClient client,
                                            DrumfireEvent *event,
                                            uint8_t *buffer,
                                            size_t capacity);

// Takes a message for the server; it leaves with the next flush or poll. The bytes are copied. `receipt` may be null; else it
// gets the number by which the message's outcome will be known, or 0 when the options ask for none.
//
// # Safety
//
// `bytes` is null or leads to `bytes_count` readable bytes.
DrumfireStatus drumfire_client_send(DrumfireClient client,
                                    uint16_t channel,
                                    const uint8_t *bytes,
                                    size_t bytes_count,
                                    const DrumfireSendOptions *options,
                                    uint64_t *receipt);

// Sends everything that was taken since the last flush or poll: at the end of a frame.
DrumfireStatus drumfire_client_flush(DrumfireClient client);

// Sets how the messages of a channel are sent, from the next flush or poll on, and for the connections to come too.
DrumfireStatus drumfire_client_set_channel(DrumfireClient client,
                                           uint16_t channel,
                                           const DrumfireChannelOptions *options);

// Forgets what came last of a key of a channel in the mode `DRUMFIRE_MODE_RELIABLE_LATEST`, for a thing that is gone.
DrumfireStatus drumfire_client_forget_key(DrumfireClient client,
                                          uint16_t channel,
                                          uint64_t key);

// How far the client has come, as of the last poll.
DrumfireStatus drumfire_client_state(DrumfireClient client, DrumfireState *state);

// What the client counted, and what was last measured of its path; asks for a new measurement, which is there once the events of
// the next poll were taken.
DrumfireStatus drumfire_client_stats(DrumfireClient client,
                                     DrumfireStats *stats);

// What the client's clock shows, in nanoseconds since some moment: the one that the server's offset in `DrumfireStats` is for.
DrumfireStatus drumfire_client_time(DrumfireClient client,
                                    uint64_t *nanoseconds);

// Writes the newest token with which this player comes back to this server, and a NUL byte, into a buffer of `capacity` bytes;
// for `DrumfireConfig.token`, also after the connection is lost. `needed` may be null; else it gets the bytes that it takes, the
// NUL byte included. Answers `DRUMFIRE_STATUS_NOT_THERE` where the server gave none. It is a secret: whoever has it can come as
// this player, once, for ten minutes.
//
// # Safety
//
// `buffer` is null or leads to `capacity` writable bytes.
DrumfireStatus drumfire_client_resume_token(DrumfireClient client,
                                            char *buffer,
                                            size_t capacity,
                                            size_t *needed);

// Goes on from a new socket, for a device that changed its network or woke up: the server follows, and nothing reliable is lost.
DrumfireStatus drumfire_client_rebind(DrumfireClient client);

// Closes the connection with the next flush or poll, with a code of the application's own and a line of up to 128 bytes for the
// server's log; null is none. `Disconnected` comes last, here too. The handle stays until `drumfire_client_free`.
//
// # Safety
//
// `text` is null or ends with a NUL byte.
DrumfireStatus drumfire_client_close(DrumfireClient client,
                                     uint32_t code,
                                     const char *text);

// Frees the client, from any thread, and tells the server once when the connection was not closed. Its handle and the bytes of
// its last event are worth nothing from now on. On another thread than the client's, for finalizers, a call that goes on
// meanwhile ends well, and the client is gone when it has.
DrumfireStatus drumfire_client_free(DrumfireClient client);

// The library's `DRUMFIRE_ABI_VERSION`. A program that loads the library at run time compares it with its own.
uint32_t drumfire_abi_version(void);

// The version of the library, `0.1.0`. It stays for ever.
const char *drumfire_version(void);

// One line on a status. It stays for ever.
const char *drumfire_status_text(int32_t status);

// One line on a `DrumfireReason`. It stays for ever.
const char *drumfire_reason_text(uint32_t reason);

// What the last call of this thread that failed had to say, in one line; empty before the first. It stays until the next call
// of this thread that fails.
const char *drumfire_last_error(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* DRUMFIRE_H */
