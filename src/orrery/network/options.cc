#include "orrery/network/options.h"

namespace orrery::network {
namespace {

using enum OptionType;

// Longest time in ns: 1,000 s.
constexpr double kLongest = 1e12;

constexpr Option kLogGops[] = {
    {.name = "L",
     .type = kTime,
     .unit = "ns",
     .fallback = "2500ns",
     .max = kLongest,
     .doc = "Latency of a message's first byte."},
    {.name = "o",
     .type = kTime,
     .unit = "ns",
     .fallback = "1500ns",
     .max = kLongest,
     .doc = "Time that a message holds the processor, at either end."},
    {.name = "g",
     .type = kTime,
     .unit = "ns",
     .fallback = "1000ns",
     .max = kLongest,
     .doc = "Least time between two messages of one network interface."},
    {.name = "G",
     .type = kNumber,
     .fallback = "6",
     .max = 1e6,
     .doc = "Time a byte holds the network interface, in ns: 0.02 is 400 Gb/s."},
    {.name = "O",
     .type = kNumber,
     .fallback = "0",
     .max = 1e6,
     .doc = "Time a byte holds the processor, in ns."},
    {.name = "S",
     .type = kBytes,
     .unit = "B",
     .fallback = "65535B",
     .doc = "Longest message that is sent before its receive is posted."},
    {.name = "receiver_bandwidth",
     .type = kBool,
     .fallback = "true",
     .doc = "A message holds the receiver's interface for its bytes too."},
    {.name = "endpoints",
     .type = kText,
     .fallback = "auto",
     .doc = "joint: a message takes processor and interface at once (LogGOPSim); staged: one after "
            "the other, over a cluster's paths; auto: joint where operations name interfaces."},
};

constexpr Option kJobLogGops[] = {
    {.name = "L",
     .type = kTime,
     .unit = "ns",
     .max = kLongest,
     .doc = "Latency of a message's first byte; the path's when left out."},
    {.name = "o",
     .type = kTime,
     .unit = "ns",
     .fallback = "0ns",
     .max = kLongest,
     .doc = "Time that a message holds a GPU's processor for the network, at either end."},
    {.name = "g",
     .type = kTime,
     .unit = "ns",
     .fallback = "0ns",
     .max = kLongest,
     .doc = "Time that a message holds a NIC beside its bytes, at either end."},
    {.name = "G",
     .type = kNumber,
     .max = 1e6,
     .doc = "Time a byte holds a NIC, in ns: 0.02 is 400 Gb/s; the path's when left out."},
    {.name = "O",
     .type = kNumber,
     .fallback = "0",
     .max = 1e6,
     .doc = "Time a byte holds the processor, in ns."},
};

constexpr OptionTable kJobLogGopsTable{
    .path = "loggops",
    .doc =
        "For network loggops: its parameters between NVLink domains. There is no S: a chunk is "
        "sent into a buffer that waits for it.",
    .options = kJobLogGops};
constexpr OptionTable kLogGopsTable{
    .path = "loggops", .doc = "The LogGOPS model, for GOAL schedules.", .options = kLogGops};

constexpr Option kPacket[] = {
    {.name = "congestion_control",
     .type = kText,
     .fallback = "none",
     .doc = "A name of 'orrery list congestion-controls'."},
    {.name = "load_balancing",
     .type = kText,
     .doc =
         "A name of 'orrery list load-balancing'; ecmp when left out, spray for ndp, eqds, nscc."},
    {.name = "paths",
     .type = kInteger,
     .fallback = "64",
     .min = 1,
     .max = 256,
     .doc = "Ways of a connection, where load balancing uses several: a power of two."},
    {.name = "switching",
     .type = kChoice,
     .fallback = "store-and-forward",
     .choices = "store-and-forward|cut-through",
     .doc = "A switch sends a packet on once it has all of it, or its header."},
    {.name = "control_first",
     .type = kBool,
     .fallback = "true",
     .doc = "Acknowledgements go before data, in a queue of their own that is never paused."},
    {.name = "pfc",
     .type = kBool,
     .doc = "Full ingresses pause the link they hang on; when left out as the congestion control "
            "needs it."},
    {.name = "trimming",
     .type = kBool,
     .doc = "What does not fit into a queue is cut to its header; when left out as the congestion "
            "control needs it."},
    {.name = "buffer_per_port",
     .type = kBytes,
     .unit = "B",
     .min = 1,
     .doc = "Of a switch's shared buffer; when left out 1 MiB, or four BDP if more."},
    {.name = "pfc_xoff",
     .type = kBytes,
     .unit = "B",
     .doc = "Bytes of an ingress that pause its link; when left out dynamic thresholds."},
    {.name = "pfc_xon",
     .type = kBytes,
     .unit = "B",
     .doc = "Bytes below which it resumes; pfc_xoff when left out."},
    {.name = "queue",
     .type = kBytes,
     .unit = "B",
     .doc = "Data that a port queues without PFC; when left out the congestion control's, or what "
            "the buffer has left."},
    {.name = "ecn_min",
     .type = kBytes,
     .unit = "B",
     .doc = "Queue from which packets are marked, at the NIC's rate; the congestion control's when "
            "left out."},
    {.name = "ecn_max",
     .type = kBytes,
     .unit = "B",
     .doc = "Queue from which all packets are marked, at the NIC's rate; likewise."},
    {.name = "ecn_most",
     .type = kFraction,
     .min = 0,
     .max = 1,
     .doc = "Share that is marked just below ecn_max; likewise."},
    {.name = "recovery",
     .type = kChoice,
     .choices = "go-back-n|selective-repeat",
     .doc = "What a sender does about a lost packet; the congestion control's when left out."},
    {.name = "rto",
     .type = kTime,
     .unit = "us",
     .max = 1e9,
     .doc = "Retransmission timer; when left out none with PFC, else 1 ms or eight round trips."},
    {.name = "window",
     .type = kBytes,
     .unit = "B",
     .doc = "Of a connection at its start; the congestion control's when left out."},
    {.name = "ack_every",
     .type = kInteger,
     .min = 0,
     .max = 1024,
     .doc = "Packets for an acknowledgement; when left out 1, and none for 'none' with PFC."},
    {.name = "flowlet_gap",
     .type = kTime,
     .unit = "us",
     .max = 1e9,
     .doc = "Pause after which a flowlet ends; the base round trip when left out."},
};
constexpr OptionTable kPacketTable{
    .path = "packet",
    .doc = "For network packet: switches, hosts and congestion control.",
    .options = kPacket};

}  // namespace

const OptionTable& PacketOptions() { return kPacketTable; }
const OptionTable& LogGopsOptions() { return kLogGopsTable; }
const OptionTable& JobLogGopsOptions() { return kJobLogGopsTable; }

}  // namespace orrery::network
