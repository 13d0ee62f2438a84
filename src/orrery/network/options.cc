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

}  // namespace

const OptionTable& LogGopsOptions() { return kLogGopsTable; }
const OptionTable& JobLogGopsOptions() { return kJobLogGopsTable; }

}  // namespace orrery::network
