#include "orrery/campaign/options.h"

namespace orrery::campaign {
namespace {

using enum OptionType;

constexpr Option kCost[] = {
    {.name = "price_per_gpu_hour",
     .type = kNumber,
     .max = 1e6,
     .doc =
         "USD for a GPU and hour. Left out: cluster.device.price_per_hour, else the device's row "
         "of data/prices.yaml."},
    {.name = "region",
     .type = kText,
     .fallback = "world",
     .doc = "Whose electricity it is: a row of data/grids.yaml."},
    {.name = "carbon_intensity",
     .type = kNumber,
     .max = 1e4,
     .doc = "g of CO2 equivalent a kWh, in place of the region's."},
    {.name = "pue",
     .type = kNumber,
     .min = 1,
     .max = 10,
     .doc = "Energy of the building over that of its servers; else as data/power.yaml says."},
    {.name = "idle_power",
     .type = kFraction,
     .max = 1,
     .doc = "Share of the board's power limit that a GPU draws with nothing to run. "
            "data/power.yaml has this and the next keys when left out."},
    {.name = "tensor_power",
     .type = kFraction,
     .max = 1,
     .doc = "Share of the limit in matrix products and attention."},
    {.name = "memory_power",
     .type = kFraction,
     .max = 1,
     .doc = "Share of the limit in kernels bound by memory."},
    {.name = "communication_power",
     .type = kFraction,
     .max = 1,
     .doc = "Share of the limit in communication kernels, at work or waiting for partners."},
    {.name = "server_power",
     .type = kFraction,
     .max = 10,
     .doc = "What a server draws beside its GPUs, as a share of their limits."},
};

constexpr Option kGoodput[] = {
    {.name = "failures",
     .type = kText,
     .fallback = "llama3-405b",
     .doc = "Whose rates of interruptions: a row of data/failures.yaml."},
    {.name = "mean_time_between_failures",
     .type = kNumber,
     .min = 1,
     .max = 1e9,
     .doc = "Hours of one GPU between interruptions, in place of the row's."},
    {.name = "hardware_share",
     .type = kFraction,
     .max = 1,
     .doc = "Share of interruptions that take a node out; the row's when left out."},
    {.name = "detection",
     .type = kTime,
     .unit = "s",
     .fallback = "600s",
     .max = 1e6,
     .doc = "From a failure until it is known what failed. MegaScale (NSDI 2024, from memory): "
            "below 10 minutes with diagnosis."},
    {.name = "restart",
     .type = kTime,
     .unit = "s",
     .fallback = "300s",
     .max = 1e6,
     .doc = "From there until ranks run again, without reading the checkpoint. MegaScale: 15 "
            "minutes until the progress is caught up; an assumption of a third of it."},
    {.name = "checkpoint",
     .type = kChoice,
     .fallback = "asynchronous",
     .choices = "synchronous|asynchronous|memory",
     .doc = "What training waits for. synchronous: the storage; asynchronous: the copy to host "
            "memory, which is stored beside training; memory: the copy, which goes to another "
            "node's memory (Gemini, SOSP 2023)."},
    {.name = "interval",
     .type = kTime,
     .unit = "s",
     .max = 1e6,
     .doc = "Training time between two checkpoints; the best interval when left out."},
    {.name = "storage_bandwidth",
     .type = kBandwidth,
     .unit = "GB/s",
     .min = 1e-6,
     .max = 1e9,
     .doc = "Bandwidth of the whole storage; 122 MB/s a GPU when left out, as Llama 3's 2 TB/s for "
            "16,384."},
    {.name = "spares",
     .type = kInteger,
     .min = 0,
     .max = 1 << 20,
     .doc = "Nodes beside those that train; when left out one is always at hand."},
    {.name = "repair",
     .type = kTime,
     .unit = "s",
     .fallback = "86400s",
     .max = 9e6,
     .doc = "Until a node that failed is back, on average: an assumption."},
    {.name = "elastic",
     .type = kBool,
     .fallback = "false",
     .doc = "Without a spare training goes on with fewer replicas; else it waits."},
    {.name = "straggler_rate",
     .type = kNumber,
     .fallback = "0",
     .max = 1e6,
     .doc = "Nodes that become slow, in 1,000 days of a node."},
    {.name = "straggler_speed",
     .type = kFraction,
     .fallback = "0.9",
     .min = 0.01,
     .max = 1,
     .doc = "Speed of the whole run while a node is slow."},
    {.name = "straggler_time",
     .type = kTime,
     .unit = "s",
     .fallback = "7200s",
     .max = 1e6,
     .doc = "Until a slow node is found and replaced."},
    {.name = "days",
     .type = kNumber,
     .fallback = "30",
     .min = 0.01,
     .max = 3650,
     .doc = "Length of the run, where training.tokens does not give it."},
    {.name = "trials",
     .type = kInteger,
     .fallback = "400",
     .min = 20,
     .max = 100'000,
     .doc = "Runs that are drawn for the 5 to 95 % interval, by simulation.seed."},
};

constexpr OptionTable kCostTable{
    .path = "cost",
    .doc =
        "What training costs in money, energy and carbon (docs/cost.md). Even an empty section "
        "asks for it.",
    .options = kCost};
constexpr OptionTable kGoodputTable{
    .path = "goodput",
    .doc =
        "What is left of the time once things fail (docs/goodput.md). Even an empty section asks "
        "for it.",
    .options = kGoodput};

}  // namespace

const OptionTable& CostOptions() { return kCostTable; }
const OptionTable& GoodputOptions() { return kGoodputTable; }

}  // namespace orrery::campaign
