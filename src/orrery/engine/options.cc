#include "orrery/engine/options.h"

namespace orrery::engine {
namespace {

using enum OptionType;

constexpr Option kSimulation[] = {
    {.name = "iterations",
     .type = kInteger,
     .min = 2,
     .max = 100,
     .doc = "Iterations simulated; until the step time settles (2 to 5) when left out."},
    {.name = "seed",
     .type = kInteger,
     .fallback = "1",
     .max = 4611686018427387904.0,
     .doc = "Seed of jitter and random placement."},
    {.name = "link_steps",
     .type = kInteger,
     .fallback = "0",
     .max = 65536,
     .doc =
         "Steps of the links' use over time in the result, at most; even. 0: none, and 256 for a "
         "timeline. For networks that see links."},
    {.name = "slowdown",
     .type = kText,
     .doc = "How kernels slow beside communication: a file of tools/slowdown "
            "(data/slowdown/h200.json). Left out: the constant model."},
};

constexpr Option kPerturb[] = {
    {.name = "jitter",
     .type = kFraction,
     .fallback = "0",
     .max = 0.2,
     .doc = "Relative standard deviation of a rank's compute time between two communications."},
};

constexpr Option kRank[] = {
    {.name = "rank", .type = kInteger, .max = 8388608, .doc = "Global rank. Required."},
    {.name = "speed",
     .type = kNumber,
     .fallback = "1",
     .min = 0.01,
     .max = 100,
     .doc = "0.9: every kernel takes 1/0.9 as long."},
    {.name = "delay",
     .type = kTime,
     .unit = "us",
     .fallback = "0us",
     .max = 1e12,
     .doc = "Wait before its first operation."},
};

constexpr Option kLink[] = {
    {.name = "link", .type = kText, .doc = "As inspect names it: leaf0/spine1. Required."},
    {.name = "bandwidth",
     .type = kFraction,
     .fallback = "1",
     .max = 1,
     .doc = "Share of its bandwidth that is left; 0: it is down, and traffic goes round it where a "
            "path is left."},
    {.name = "from",
     .type = kTime,
     .unit = "s",
     .fallback = "0s",
     .max = 1e6,
     .doc = "When the change begins."},
    {.name = "until",
     .type = kTime,
     .unit = "s",
     .max = 1e6,
     .doc = "When it ends; never when left out."},
};

constexpr OptionTable kSimulationTable{
    .path = "simulation", .doc = "How the run is made.", .options = kSimulation};
constexpr OptionTable kPerturbTable{
    .path = "perturb", .doc = "What disturbs the run.", .options = kPerturb};
constexpr OptionTable kRankTable{
    .path = "perturb.ranks", .doc = "Slow or late ranks.", .options = kRank};
constexpr OptionTable kLinkTable{.path = "perturb.links",
                                 .doc = "Degraded links, for networks that see links.",
                                 .options = kLink};

}  // namespace

const OptionTable& SimulationOptions() { return kSimulationTable; }
const OptionTable& PerturbOptions() { return kPerturbTable; }
const OptionTable& PerturbRankOptions() { return kRankTable; }
const OptionTable& PerturbLinkOptions() { return kLinkTable; }

}  // namespace orrery::engine
