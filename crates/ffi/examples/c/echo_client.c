/* Sends messages to an echo server and checks the echoes. The example `echo` is such a server.
 *
 *   cargo build --release -p drumfire-ffi
 *   cargo run --release --example echo -- server 127.0.0.1:7777
 *   cc -std=c99 -I crates/ffi/include crates/ffi/examples/c/echo_client.c -o echo_client \
 *      -L target/release -ldrumfire_ffi -Wl,-rpath,target/release
 *   ./echo_client 127.0.0.1:7777 drumfire_public_...
 *
 * The server prints its public key. The program exits with 0 if all echoes arrived, and with 1 and an error message otherwise.
 */
#include <stdio.h>
#include <string.h>

#include "drumfire.h"

#define MESSAGES 50
#define CHANNEL 0
/* The length of a frame in milliseconds. A game has its own frame timing and calls poll with 0. */
#define FRAME_MS 10
#define FRAMES_MAX 2000
/* The size of the longest message. */
#define MESSAGE_BYTES_MAX 600

struct game {
  DrumfireClient client;
  int sent;
  int echoes;
  int receipts;
  int is_connected;
  int is_closed;
};

/* Prints the error of a failed call. Returns 0 if the call succeeded. */
static int failed(const char *call, DrumfireStatus status) {
  if (status == DRUMFIRE_STATUS_OK) {
    return 0;
  }
  fprintf(stderr, "%s: %s: %s\n", call, drumfire_status_text(status), drumfire_last_error());
  return 1;
}

/* Writes the message with this number and returns its length. All lengths differ. */
static size_t message(int number, uint8_t *bytes) {
  size_t count = (size_t)(number + 1) * 12;
  memset(bytes, number + 1, count);
  return count;
}

/* Sends the next message if the last one was echoed. */
static int send_next(struct game *game) {
  uint8_t bytes[MESSAGE_BYTES_MAX];
  DrumfireSendOptions options = {0};
  uint64_t receipt = 0;
  size_t count;

  if (game->sent == MESSAGES || game->sent > game->echoes) {
    return 0;
  }
  options.mode = DRUMFIRE_MODE_RELIABLE_ORDERED;
  options.flags = DRUMFIRE_SEND_RECEIPT;
  count = message(game->sent, bytes);
  if (failed("send", drumfire_client_send(game->client, CHANNEL, bytes, count, &options, &receipt))) {
    return 1;
  }
  game->sent += 1;
  return receipt == 0;
}

/* Handles an event. */
static int handle_event(struct game *game, const DrumfireEvent *event) {
  uint8_t expected[MESSAGE_BYTES_MAX];

  switch (event->kind) {
    case DRUMFIRE_EVENT_KIND_CONNECTED:
      game->is_connected = 1;
      return 0;
    case DRUMFIRE_EVENT_KIND_MESSAGE:
      if (event->channel != CHANNEL || event->bytes_count != message(game->echoes, expected) ||
          memcmp(event->bytes, expected, event->bytes_count) != 0) {
        fprintf(stderr, "echo %d differs from its message\n", game->echoes);
        return 1;
      }
      game->echoes += 1;
      return 0;
    case DRUMFIRE_EVENT_KIND_RECEIPT:
      game->receipts += event->outcome == DRUMFIRE_OUTCOME_ACKNOWLEDGED;
      return 0;
    case DRUMFIRE_EVENT_KIND_CONNECT_FAILED:
      fprintf(stderr, "connect failed: %.*s\n", (int)event->bytes_count, (const char *)event->bytes);
      return 1;
    case DRUMFIRE_EVENT_KIND_DISCONNECTED:
      game->is_closed = 1;
      return event->reason != DRUMFIRE_REASON_CLOSED_BY_CLIENT;
    default:
      return 0;
  }
}

/* Runs a frame: handles the events, sends the next message, and flushes. */
static int frame(struct game *game, int number) {
  uint8_t buffer[MESSAGE_BYTES_MAX];
  DrumfireEvent event;
  DrumfireStatus status;

  if (failed("poll", drumfire_client_poll(game->client, FRAME_MS))) {
    return 1;
  }
  for (;;) {
    /* There are two ways to take an event: with borrowed bytes, and with a copy of the bytes. */
    if (number % 2 == 0) {
      status = drumfire_client_receive(game->client, &event);
    } else {
      status = drumfire_client_receive_into(game->client, &event, buffer, sizeof buffer);
    }
    if (failed("receive", status)) {
      return 1;
    }
    if (event.kind == DRUMFIRE_EVENT_KIND_NONE) {
      break;
    }
    if (handle_event(game, &event)) {
      return 1;
    }
  }
  if (game->is_closed || send_next(game)) {
    return !game->is_closed;
  }
  return failed("flush", drumfire_client_flush(game->client));
}

int main(int argc, char **argv) {
  DrumfireConfig config = {0};
  DrumfireStats stats = {0};
  struct game game = {0};
  int number, is_broken = 0, has_called_close = 0;

  if (drumfire_abi_version() != DRUMFIRE_ABI_VERSION) {
    fprintf(stderr, "the library has interface version %u, but this program was compiled for %d\n", (unsigned)drumfire_abi_version(), DRUMFIRE_ABI_VERSION);
    return 1;
  }
  if (argc != 3) {
    fprintf(stderr, "usage: %s ADDRESS PUBLIC_KEY\n", argv[0]);
    return 1;
  }
  config.server = argv[1];
  config.server_key = argv[2];
  if (failed("connect", drumfire_client_connect(&config, &game.client))) {
    return 1;
  }
  for (number = 0; number < FRAMES_MAX && !game.is_closed && !is_broken; number++) {
    is_broken = frame(&game, number);
    if (!has_called_close && game.receipts == MESSAGES && game.echoes == MESSAGES) {
      is_broken |= failed("stats", drumfire_client_stats(game.client, &stats));
      is_broken |= failed("close", drumfire_client_close(game.client, 0, "done"));
      has_called_close = 1;
    }
  }
  is_broken |= failed("free", drumfire_client_free(game.client));
  if (drumfire_client_free(game.client) != DRUMFIRE_STATUS_BAD_HANDLE) {
    fprintf(stderr, "a freed handle was accepted\n");
    return 1;
  }
  if (is_broken || !game.is_closed) {
    fprintf(stderr, "connected: %d, sent: %d, echoes: %d, receipts: %d\n", game.is_connected, game.sent, game.echoes, game.receipts);
    return 1;
  }
  printf("drumfire %s: %d echoes, %d receipts, %llu datagrams sent, %llu received\n", drumfire_version(), game.echoes,
         game.receipts, (unsigned long long)stats.datagrams_sent, (unsigned long long)stats.datagrams_received);
  return 0;
}
