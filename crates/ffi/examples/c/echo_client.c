/* Sends messages to a server that answers each with itself, and checks every answer: the example `echo` is such a server.
 *
 *   cargo build --release -p drumfire-ffi
 *   cargo run --release --example echo -- server 127.0.0.1:7777
 *   cc -std=c99 -I crates/ffi/include crates/ffi/examples/c/echo_client.c -o echo_client \
 *      -L target/release -ldrumfire_ffi -Wl,-rpath,target/release
 *   ./echo_client 127.0.0.1:7777 drumfire_public_...
 *
 * The server prints its key. It ends with 0 when every answer came, and with 1 and a line that says why when not.
 */
#include <stdio.h>
#include <string.h>

#include "drumfire.h"

#define MESSAGES 50
#define CHANNEL 0
/* A frame of this program, in milliseconds; a game calls poll with 0 and has frames of its own. */
#define FRAME_MS 10
#define FRAMES_MAX 2000
/* As long as the longest answer. */
#define ROOM 600

struct game {
  DrumfireClient client;
  int sent;
  int answered;
  int receipts;
  int is_connected;
  int is_over;
};

/* Prints what went wrong in the call of this name; 0 when nothing did. */
static int failed(const char *call, DrumfireStatus status) {
  if (status == DRUMFIRE_STATUS_OK) {
    return 0;
  }
  fprintf(stderr, "%s: %s: %s\n", call, drumfire_status_text(status), drumfire_last_error());
  return 1;
}

/* The message of this number: each has another length. */
static size_t message(int number, uint8_t *bytes) {
  size_t count = (size_t)(number + 1) * 12;
  memset(bytes, number + 1, count);
  return count;
}

/* Sends the next message, if there is one and the last was answered. */
static int play(struct game *game) {
  uint8_t bytes[ROOM];
  DrumfireSendOptions options = {0};
  uint64_t receipt = 0;
  size_t count;

  if (game->sent == MESSAGES || game->sent > game->answered) {
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

/* Takes in one event. */
static int heard(struct game *game, const DrumfireEvent *event) {
  uint8_t expected[ROOM];

  switch (event->kind) {
    case DRUMFIRE_EVENT_KIND_CONNECTED:
      game->is_connected = 1;
      return 0;
    case DRUMFIRE_EVENT_KIND_MESSAGE:
      if (event->channel != CHANNEL || event->bytes_count != message(game->answered, expected) ||
          memcmp(event->bytes, expected, event->bytes_count) != 0) {
        fprintf(stderr, "answer %d is not the message\n", game->answered);
        return 1;
      }
      game->answered += 1;
      return 0;
    case DRUMFIRE_EVENT_KIND_RECEIPT:
      game->receipts += event->outcome == DRUMFIRE_OUTCOME_ACKNOWLEDGED;
      return 0;
    case DRUMFIRE_EVENT_KIND_CONNECT_FAILED:
      fprintf(stderr, "no connection: %.*s\n", (int)event->bytes_count, (const char *)event->bytes);
      return 1;
    case DRUMFIRE_EVENT_KIND_DISCONNECTED:
      game->is_over = 1;
      return event->reason != DRUMFIRE_REASON_CLOSED_HERE;
    default:
      return 0;
  }
}

/* One frame: what came, what follows, and out with it. */
static int frame(struct game *game, int number) {
  uint8_t buffer[ROOM];
  DrumfireEvent event;
  DrumfireStatus status;

  if (failed("poll", drumfire_client_poll(game->client, FRAME_MS))) {
    return 1;
  }
  for (;;) {
    /* Both ways to take an event: with bytes that are borrowed until the next one, and with a copy. */
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
    if (heard(game, &event)) {
      return 1;
    }
  }
  if (game->is_over || play(game)) {
    return !game->is_over;
  }
  return failed("flush", drumfire_client_flush(game->client));
}

int main(int argc, char **argv) {
  DrumfireConfig config = {0};
  DrumfireStats stats = {0};
  struct game game = {0};
  int number, is_broken = 0, is_closed = 0;

  if (drumfire_abi_version() != DRUMFIRE_ABI_VERSION) {
    fprintf(stderr, "the library has interface %u, this program %d\n", (unsigned)drumfire_abi_version(), DRUMFIRE_ABI_VERSION);
    return 1;
  }
  if (argc != 3) {
    fprintf(stderr, "say %s ADDRESS PUBLIC_KEY\n", argv[0]);
    return 1;
  }
  config.server = argv[1];
  config.server_key = argv[2];
  if (failed("connect", drumfire_client_connect(&config, &game.client))) {
    return 1;
  }
  for (number = 0; number < FRAMES_MAX && !game.is_over && !is_broken; number++) {
    is_broken = frame(&game, number);
    if (!is_closed && game.receipts == MESSAGES && game.answered == MESSAGES) {
      is_broken |= failed("stats", drumfire_client_stats(game.client, &stats));
      is_broken |= failed("close", drumfire_client_close(game.client, 0, "done"));
      is_closed = 1;
    }
  }
  is_broken |= failed("free", drumfire_client_free(game.client));
  if (drumfire_client_free(game.client) != DRUMFIRE_STATUS_BAD_HANDLE) {
    fprintf(stderr, "a client that was freed is still there\n");
    return 1;
  }
  if (is_broken || !game.is_over) {
    fprintf(stderr, "connected: %d, sent: %d, answered: %d, receipts: %d\n", game.is_connected, game.sent, game.answered, game.receipts);
    return 1;
  }
  printf("drumfire %s: %d answers, %d receipts, %llu datagrams there, %llu back\n", drumfire_version(), game.answered,
         game.receipts, (unsigned long long)stats.datagrams_sent, (unsigned long long)stats.datagrams_received);
  return 0;
}
