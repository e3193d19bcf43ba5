/* The echo server of the C library: waits for the socket or a millisecond, takes all events, answers each message, flushes. Ends
 * when its standard input does, and says what it counted. Arguments: `reliable` or `unreliable`, and the bytes of an answer or
 * 0 for those of the message; or `version`, to say that of the library and end. The settings are those that
 * `src/libraries/enet.rs` names. It connects to nobody. */
#include <arpa/inet.h>
#include <enet/enet.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PEERS = 2048, CHANNELS = 4, BUFFER_BYTES = 4 * 1024 * 1024, ANSWER_MAX_BYTES = 1024, LOOK_UP_MS = 100, KEEP_ALIVE_MS = 7500 };

struct served {
    unsigned long long received, echoed, refused;
};

static int has_input_ended(void) {
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    char byte;
    return poll(&input, 1, 0) > 0 && read(STDIN_FILENO, &byte, 1) <= 0;
}

/* The message itself, or the message over again until the answer is as long as it has to be. */
static ENetPacket *answer_to(const ENetPacket *message, size_t bytes, enet_uint32 flags) {
    if (bytes == 0 || message->dataLength == 0)
        return enet_packet_create(message->data, message->dataLength, flags);
    ENetPacket *answer = enet_packet_create(NULL, bytes, flags);
    for (size_t at = 0; answer != NULL && at < bytes; at++)
        answer->data[at] = message->data[at % message->dataLength];
    return answer;
}

static void on_message(const ENetEvent *event, size_t bytes, enet_uint32 flags, struct served *served) {
    ENetPacket *answer = answer_to(event->packet, bytes, flags);
    served->received++;
    if (answer != NULL && enet_peer_send(event->peer, event->channelID, answer) == 0) {
        served->echoed++;
    } else {
        served->refused++;
        if (answer != NULL)
            enet_packet_destroy(answer);
    }
    enet_packet_destroy(event->packet);
}

static int serve(ENetHost *host, size_t bytes, enet_uint32 flags, struct served *served) {
    enet_uint32 next_look = 0;
    size_t connected = 0;
    for (;;) {
        ENetEvent event;
        enet_uint32 now = enet_time_get();
        if (now >= next_look) {
            if (has_input_ended())
                return 0;
            next_look = now + LOOK_UP_MS;
        }
        int came = enet_host_service(host, &event, connected > 0 ? 1 : LOOK_UP_MS);
        for (; came > 0; came = enet_host_check_events(host, &event)) {
            if (event.type == ENET_EVENT_TYPE_CONNECT) {
                connected++;
                enet_peer_throttle_configure(event.peer, ENET_PEER_PACKET_THROTTLE_INTERVAL,
                                             ENET_PEER_PACKET_THROTTLE_SCALE, 0);
                enet_peer_ping_interval(event.peer, KEEP_ALIVE_MS);
            } else if (event.type == ENET_EVENT_TYPE_DISCONNECT) {
                connected--;
            } else if (event.type == ENET_EVENT_TYPE_RECEIVE) {
                on_message(&event, bytes, flags, served);
            }
        }
        if (came < 0)
            return 1;
        enet_host_flush(host);
    }
}

int main(int count, char **arguments) {
    if (count == 2 && strcmp(arguments[1], "version") == 0) {
        ENetVersion version = enet_linked_version();
        printf("%u.%u.%u\n", ENET_VERSION_GET_MAJOR(version), ENET_VERSION_GET_MINOR(version), ENET_VERSION_GET_PATCH(version));
        return 0;
    }
    size_t bytes = count > 2 ? strtoul(arguments[2], NULL, 10) : ANSWER_MAX_BYTES + 1;
    if (bytes > ANSWER_MAX_BYTES || enet_initialize() != 0) {
        fprintf(stderr, "error: the ENet server takes a delivery and the bytes of an answer\n");
        return 1;
    }
    enet_uint32 flags = strcmp(arguments[1], "reliable") == 0 ? ENET_PACKET_FLAG_RELIABLE : 0;
    ENetAddress address = {.host = htonl(INADDR_LOOPBACK), .port = 0};
    ENetHost *host = enet_host_create(&address, PEERS, CHANNELS, 0, 0);
    if (host == NULL) {
        fprintf(stderr, "error: the ENet host cannot be made\n");
        return 1;
    }
    enet_socket_set_option(host->socket, ENET_SOCKOPT_RCVBUF, BUFFER_BYTES);
    if (enet_socket_get_address(host->socket, &address) != 0)
        return 1;
    printf("127.0.0.1:%u\n", address.port);
    fflush(stdout);
    struct served served = {0};
    int failed = serve(host, bytes, flags, &served);
    printf("{\"received\":%llu,\"echoed\":%llu,\"refused\":%llu}\n", served.received, served.echoed, served.refused);
    fflush(stdout);
    enet_host_destroy(host);
    return failed;
}
