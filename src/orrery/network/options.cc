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
};

constexpr OptionTable kLogGopsTable{
    .path = "loggops", .doc = "The LogGOPS model, for GOAL schedules.", .options = kLogGops};

}  // namespace

const OptionTable& LogGopsOptions() { return kLogGopsTable; }

}  // namespace orrery::network
