/* The yardstick: what a plain C loop of epoll and recvfrom costs per datagram.
 *
 * epoll_recvfrom CORE BUFFER_BYTES
 *
 * Binds a free UDP port of the loopback, prints it, and receives edge-triggered until EAGAIN, summing one byte
 * of each datagram, until its standard input ends. Then it prints datagrams received and kernel drops. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef SO_MEMINFO
#define SO_MEMINFO 55
#endif

enum { MEMINFO_VARS = 9, MEMINFO_DROPS = 8 };

static void fail(const char *step) {
    perror(step);
    exit(1);
}

static uint32_t kernel_drops(int fd) {
    uint32_t info[MEMINFO_VARS] = {0};
    socklen_t length = sizeof info;
    if (getsockopt(fd, SOL_SOCKET, SO_MEMINFO, info, &length) < 0) fail("SO_MEMINFO");
    return info[MEMINFO_DROPS];
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: epoll_recvfrom CORE BUFFER_BYTES\n");
        return 2;
    }
    cpu_set_t cores;
    CPU_ZERO(&cores);
    CPU_SET(atoi(argv[1]), &cores);
    if (sched_setaffinity(0, sizeof cores, &cores) < 0) fail("sched_setaffinity");

    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    if (fd < 0) fail("socket");
    int buffer_bytes = atoi(argv[2]);
    if (setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &buffer_bytes, sizeof buffer_bytes) < 0) fail("SO_RCVBUF");
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    if (bind(fd, (struct sockaddr *)&address, length) < 0) fail("bind");
    if (getsockname(fd, (struct sockaddr *)&address, &length) < 0) fail("getsockname");

    int poll = epoll_create1(0);
    if (poll < 0) fail("epoll_create1");
    struct epoll_event datagrams = {.events = EPOLLIN | EPOLLET, .data.fd = fd};
    struct epoll_event end = {.events = EPOLLIN | EPOLLHUP, .data.fd = 0};
    if (epoll_ctl(poll, EPOLL_CTL_ADD, fd, &datagrams) < 0) fail("epoll_ctl");
    if (epoll_ctl(poll, EPOLL_CTL_ADD, 0, &end) < 0) fail("epoll_ctl");
    printf("%u\n", ntohs(address.sin_port));
    fflush(stdout);

    static unsigned char datagram[65536];
    uint64_t received = 0, sum = 0;
    for (;;) {
        struct epoll_event events[8];
        int count = epoll_wait(poll, events, 8, -1);
        if (count < 0 && errno != EINTR) fail("epoll_wait");
        for (int i = 0; i < count; i++) {
            if (events[i].data.fd == 0) {
                printf("%llu %u %llu\n", (unsigned long long)received, kernel_drops(fd), (unsigned long long)sum);
                return 0;
            }
            for (;;) {
                struct sockaddr_in from;
                socklen_t from_length = sizeof from;
                ssize_t bytes = recvfrom(fd, datagram, sizeof datagram, 0, (struct sockaddr *)&from, &from_length);
                if (bytes < 0) {
                    if (errno == EAGAIN) break;
                    continue;
                }
                sum += datagram[0];
                received++;
            }
        }
    }
}
