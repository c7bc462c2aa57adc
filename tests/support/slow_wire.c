/* A long and slow wire out of a machine: `slow_wire MACHINE NETWORK RATE DELAY`, in a network namespace of which both
 * interfaces are. What comes from MACHINE is sent at RATE (bits per second) and gets to NETWORK after DELAY
 * (nanoseconds), or is dropped if so much waits before it that its turn is over 50 ms away; what comes from NETWORK gets
 * to MACHINE at once. Many kernels lack netem, and have nothing else that delays.
 *
 * Segments that are to be split later pass in one piece, each counted with headers of its own. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <linux/virtio_net.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>

#define LARGEST (1 << 17)
#define LONGEST_WAIT_NS 50000000LL
#define BUFFER_BYTES (64 << 20)

typedef struct Frame {
    struct Frame *next;
    int64_t arrives;
    size_t size;
    char data[]; /* a virtio_net_hdr, then Ethernet's frame */
} Frame;

static int64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static void check(int result, const char *what)
{
    if (result < 0) {
        perror(what);
        exit(1);
    }
}

static int end_of(const char *interface)
{
    int one = 1, room = BUFFER_BYTES;
    struct sockaddr_ll address = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL)};
    int end = socket(AF_PACKET, SOCK_RAW, 0);
    check(end, "socket");
    address.sll_ifindex = if_nametoindex(interface);
    check(address.sll_ifindex ? 0 : -1, interface);
    check(setsockopt(end, SOL_PACKET, PACKET_VNET_HDR, &one, sizeof one), "PACKET_VNET_HDR");
    check(setsockopt(end, SOL_PACKET, PACKET_IGNORE_OUTGOING, &one, sizeof one), "PACKET_IGNORE_OUTGOING");
    check(setsockopt(end, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room), "SO_RCVBUFFORCE");
    check(setsockopt(end, SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof room), "SO_SNDBUFFORCE");
    check(bind(end, (struct sockaddr *)&address, sizeof address), interface);
    return end;
}

static ssize_t received(int end, char *data)
{
    ssize_t size = recv(end, data, LARGEST, MSG_DONTWAIT);
    if (size < 0 && errno != EAGAIN && errno != EINTR && errno != ENETDOWN)
        check(-1, "recv");
    return size;
}

static void deliver(int end, const char *data, size_t size)
{
    if (send(end, data, size, 0) < 0 && errno != ENOBUFS && errno != ENETDOWN && errno != ENXIO)
        check(-1, "send");
}

/* What the frame takes on the wire: where it is several segments of TCP, headers for each of them. */
static int64_t wire_bytes(const char *data, size_t size)
{
    struct virtio_net_hdr header;
    int64_t bytes = size - sizeof header;
    memcpy(&header, data, sizeof header);
    if (header.gso_type != VIRTIO_NET_HDR_GSO_NONE && header.gso_size) {
        uint8_t words = (uint8_t)data[sizeof header + header.csum_start + 12] >> 4; /* RFC 9293, "data offset" */
        int64_t headers = header.csum_start + 4 * words;
        bytes += (bytes - headers - 1) / header.gso_size * headers;
    }
    return bytes;
}

int main(int count, char **words)
{
    static char buffer[LARGEST];
    if (count != 5) {
        fprintf(stderr, "slow_wire MACHINE NETWORK RATE DELAY\n");
        return 2;
    }
    int machine = end_of(words[1]), network = end_of(words[2]);
    double rate = atof(words[3]);
    int64_t delay = atoll(words[4]), sent = 0;
    Frame *first = NULL, **last = &first;
    struct pollfd ends[] = {{.fd = machine, .events = POLLIN}, {.fd = network, .events = POLLIN}};
    prctl(PR_SET_TIMERSLACK, 1L);
    prctl(PR_SET_PDEATHSIG, 9L);
    puts("ready");
    fflush(stdout);
    for (;;) {
        ssize_t size;
        int64_t left = first ? first->arrives - now() : 0;
        struct timespec wait = {.tv_nsec = left > 0 ? left : 0}; /* under a second: DELAY and 50 ms at most */
        wait.tv_sec = wait.tv_nsec / 1000000000L;
        wait.tv_nsec %= 1000000000L;
        if (ppoll(ends, 2, first ? &wait : NULL, NULL) < 0 && errno != EINTR)
            check(-1, "ppoll");
        while ((size = received(network, buffer)) > 0)
            deliver(machine, buffer, size);
        while ((size = received(machine, buffer)) > 0) {
            int64_t moment = now(), begins = sent > moment ? sent : moment;
            if (begins - moment > LONGEST_WAIT_NS)
                continue;
            sent = begins + (int64_t)(8e9 * wire_bytes(buffer, size) / rate);
            Frame *frame = malloc(sizeof *frame + size);
            check(frame ? 0 : -1, "malloc");
            *frame = (Frame){.arrives = sent + delay, .size = size};
            memcpy(frame->data, buffer, size);
            *last = frame;
            last = &frame->next;
        }
        while (first && first->arrives <= now()) {
            Frame *frame = first;
            deliver(network, frame->data, frame->size);
            first = frame->next;
            if (!first)
                last = &first;
            free(frame);
        }
    }
}
