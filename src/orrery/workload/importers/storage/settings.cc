#include "orrery/workload/importers/storage/settings.h"

#include <algorithm>
#include <array>

#include "orrery/base/named.h"
#include "orrery/base/suggest.h"
#include "orrery/base/text.h"
#include "orrery/base/units.h"

namespace orrery::workload {
namespace {

using formats::Section;
using Addresses = StorageLoadSettings::Addresses;
using Lookup = DirectDriveSettings::Lookup;

constexpr double kMostBytes = 1e15;
constexpr std::int64_t kDefaultRequests = 10'000;
constexpr int kDefaultClients = 16;
constexpr std::int64_t kMostSlices = 1 << 24;  // of a disk whose slices are drawn by rank

constexpr Option kKeys[] = {
    {.name = "trace",
     .type = OptionType::kText,
     .doc = "In a file of these keys: the SPC trace that brings the requests."},
    {.name = "requests",
     .type = OptionType::kInteger,
     .min = 1,
     .max = kMostStorageRequests,
     .doc = "Of a trace: the first so many, else all. Of a synthetic load: how many, else 10000."},
    {.name = "clients",
     .type = OptionType::kInteger,
     .min = 1,
     .max = 65536,
     .doc = "Hosts that ask. A trace's disks (ASUs) go to them in turn; one a disk when left out. "
            "A synthetic load has a disk a client; 16 when left out."},
    {.name = "loop",
     .type = OptionType::kChoice,
     .fallback = "open",
     .choices = "open|closed",
     .doc = "open: a request is made at its time, whatever is under way. closed: each client has "
            "`depth` under way."},
    {.name = "depth",
     .type = OptionType::kInteger,
     .fallback = "1",
     .min = 1,
     .max = 4096,
     .doc = "Of a closed loop: a client's requests under way. They go to as many lanes in turn; a "
            "lane makes its next once its last is answered."},
    {.name = "think",
     .type = OptionType::kTime,
     .unit = "us",
     .fallback = "0us",
     .max = 1e12,
     .doc = "Of a closed loop: from an answer to a lane's next request."},
    {.name = "time_scale",
     .type = OptionType::kNumber,
     .fallback = "1",
     .max = 1e6,
     .doc = "Of an open loop: times the time between a trace's requests; 0.5 is twice the load."},
    {.name = "block",
     .type = OptionType::kBytes,
     .unit = "B",
     .fallback = "512B",
     .min = 1,
     .max = 1e6,
     .doc = "Bytes that a trace's LBA counts by."},
    {.name = "reads",
     .type = OptionType::kFraction,
     .fallback = "70%",
     .max = 1,
     .doc = "Synthetic: the share of requests that read."},
    {.name = "size",
     .type = OptionType::kText,
     .fallback = "4KiB",
     .doc = "Synthetic: bytes of a request, or several with their shares: 4KiB:3,64KiB:1."},
    {.name = "addresses",
     .type = OptionType::kChoice,
     .fallback = "uniform",
     .choices = "uniform|zipf|sequential",
     .doc = "Synthetic: where on its client's disk a request goes. zipf: slices by popularity."},
    {.name = "zipf",
     .type = OptionType::kNumber,
     .fallback = "0.99",
     .max = 10,
     .doc = "Synthetic, zipf: the k-th slice is asked for in proportion to k^-zipf."},
    {.name = "disk",
     .type = OptionType::kBytes,
     .unit = "B",
     .fallback = "64GiB",
     .min = 1,
     .max = kMostBytes,
     .doc = "Synthetic: a client's disk."},
    {.name = "rate",
     .type = OptionType::kNumber,
     .fallback = "100000",
     .min = 1e-3,
     .max = 1e12,
     .doc = "Synthetic, open: requests a second, of all clients together."},
    {.name = "arrivals",
     .type = OptionType::kChoice,
     .fallback = "poisson",
     .choices = "poisson|even",
     .doc = "Synthetic, open: at random, or with equal time between."},
    {.name = "seed",
     .type = OptionType::kInteger,
     .fallback = "1",
     .max = 1e15,
     .doc = "Synthetic: of what is drawn."},
    {.name = "slice",
     .type = OptionType::kBytes,
     .unit = "B",
     .fallback = "1MiB",
     .min = 512,
     .max = kMostBytes,
     .doc =
         "What one coordinator owns of a disk in one piece; a request is served slice by slice."},
    {.name = "coordinators",
     .type = OptionType::kInteger,
     .fallback = "8",
     .min = 1,
     .max = 65536,
     .doc = "Change coordinators; slice s of disk d belongs to number (d + s) mod coordinators."},
    {.name = "stores",
     .type = OptionType::kInteger,
     .fallback = "64",
     .min = 1,
     .max = 65536,
     .doc = "Block stores; each coordinator has its share of them."},
    {.name = "replicas",
     .type = OptionType::kInteger,
     .fallback = "3",
     .min = 1,
     .max = 65536,
     .doc = "Stores that hold a slice, of those of its coordinator; a write is answered when all "
            "have it, reads go to them in turn."},
    {.name = "lookup",
     .type = OptionType::kChoice,
     .fallback = "always",
     .choices = "always|first|never",
     .doc = "When a read asks the slice's coordinator before the store: always, a client's first "
            "of a slice, or never."},
    {.name = "mount",
     .type = OptionType::kBool,
     .fallback = "false",
     .doc = "A client first mounts its disk: balancer, gateway, metadata service and back."},
    {.name = "metadata",
     .type = OptionType::kInteger,
     .fallback = "1",
     .min = 1,
     .max = 65536,
     .doc = "With mount: metadata services; clients go to them in turn."},
    {.name = "gateways",
     .type = OptionType::kInteger,
     .fallback = "1",
     .min = 1,
     .max = 65536,
     .doc = "With mount: gateways."},
    {.name = "balancers",
     .type = OptionType::kInteger,
     .fallback = "1",
     .min = 1,
     .max = 65536,
     .doc = "With mount: load balancers."},
    {.name = "request_size",
     .type = OptionType::kBytes,
     .unit = "B",
     .fallback = "1KiB",
     .min = 1,
     .max = 1e9,
     .doc = "A message that asks (lookup, read), and a store's acknowledgement."},
    {.name = "reply_size",
     .type = OptionType::kBytes,
     .unit = "B",
     .fallback = "4KiB",
     .min = 1,
     .max = 1e9,
     .doc = "A message with a slice's state: to a lookup, to a write, of a mount."},
    {.name = "lookup_time",
     .type = OptionType::kTime,
     .unit = "us",
     .fallback = "683ns",
     .max = 1e9,
     .doc = "What a lookup or a mount takes its service: 4 KiB at 6 GB/s."},
    {.name = "read_rate",
     .type = OptionType::kBandwidth,
     .unit = "GB/s",
     .fallback = "6GB/s",
     .min = 1e-6,
     .doc = "How fast a store reads; one request at a time."},
    {.name = "write_rate",
     .type = OptionType::kBandwidth,
     .unit = "GB/s",
     .fallback = "1.5GB/s",
     .min = 1e-6,
     .doc = "How fast a store writes."},
    {.name = "journal_rate",
     .type = OptionType::kBandwidth,
     .unit = "GB/s",
     .fallback = "1.5GB/s",
     .min = 1e-6,
     .doc = "How fast a coordinator writes what it then replicates."},
    {.name = "read_latency",
     .type = OptionType::kTime,
     .unit = "us",
     .fallback = "0us",
     .max = 1e9,
     .doc = "What a read takes its store besides."},
    {.name = "write_latency",
     .type = OptionType::kTime,
     .unit = "us",
     .fallback = "0us",
     .max = 1e9,
     .doc = "What a write takes its store besides."},
    {.name = "collect_after",
     .type = OptionType::kBytes,
     .unit = "B",
     .fallback = "0B",
     .max = kMostBytes,
     .doc = "Garbage collection: a store collects after so many bytes written; 0: never."},
    {.name = "collect_time",
     .type = OptionType::kTime,
     .unit = "us",
     .fallback = "1500us",
     .max = 1e9,
     .doc = "For how long that holds it; 1.5 ms erases a flash block."},
    {.name = "placement",
     .type = OptionType::kChoice,
     .fallback = "grouped",
     .choices = "grouped|spread",
     .doc = "Ranks of a kind one after the other, clients first; or each kind spread evenly."},
    {.name = "rank",
     .type = OptionType::kText,
     .fallback = "node",
     .doc =
         "What a host of the service is on a cluster: node (its first GPU's interface), or gpu."},
};
constexpr OptionTable kTable{
    .path = "storage",
    .doc = "Requests to a block storage service (docs/formats/storage.md).",
    .options = kKeys};

constexpr std::array<Named<Addresses>, 3> kAddresses = {{{"uniform", Addresses::kUniform},
                                                         {"zipf", Addresses::kZipf},
                                                         {"sequential", Addresses::kSequential}}};
constexpr std::array<Named<Lookup>, 3> kLookups = {
    {{"always", Lookup::kAlways}, {"first", Lookup::kFirst}, {"never", Lookup::kNever}}};

// Keys that play a part only in some runs.
Status CheckKeys(const Section& section, bool trace) {
  const bool open = section.Text("loop") == "open";
  const bool zipf = section.Text("addresses") == "zipf";
  const struct {
    std::string_view key;
    bool plays;
    std::string_view when;
  } kRows[] = {
      {"depth", !open, "a closed loop (storage.loop=closed)"},
      {"think", !open, "a closed loop (storage.loop=closed)"},
      {"time_scale", open && trace, "a trace in an open loop"},
      {"block", trace, "a trace"},
      {"reads", !trace, "a synthetic load; a trace says what reads"},
      {"size", !trace, "a synthetic load; a trace has sizes"},
      {"addresses", !trace, "a synthetic load; a trace has addresses"},
      {"zipf", zipf, "addresses that are drawn so (storage.addresses=zipf)"},
      {"disk", !trace, "a synthetic load"},
      {"rate", !trace && open, "a synthetic load in an open loop"},
      {"arrivals", !trace && open, "a synthetic load in an open loop"},
      {"seed", !trace, "a synthetic load"},
      {"metadata", section.Bool("mount"), "storage.mount=true"},
      {"gateways", section.Bool("mount"), "storage.mount=true"},
      {"balancers", section.Bool("mount"), "storage.mount=true"},
      {"collect_time", section.Integer("collect_after") > 0, "storage.collect_after above 0"},
  };
  for (const auto& row : kRows) {
    if (row.plays || !section.Has(row.key)) continue;
    return InvalidInput("{}: is for {}; leave it out", section.Where(row.key), row.when);
  }
  return {};
}

// "4KiB:3,64KiB:1"
Status ReadSizes(const Section& section, StorageLoadSettings* load) {
  const std::string text = section.Text("size");
  std::string_view rest = text;
  double sum = 0;
  while (!rest.empty()) {
    std::string_view item = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), item.size() + 1));
    const std::size_t colon = item.find(':');
    const Result<std::int64_t> bytes = ParseWhole(item.substr(0, colon), Dimension::kBytes, "B");
    double share = 1;
    bool good = bytes.ok() && *bytes >= 1 && *bytes <= std::int64_t{1} << 30;
    if (good && colon != item.npos) {
      const Result<double> read = ParseReal(item.substr(colon + 1), Dimension::kFraction, "");
      good = read.ok() && *read > 0 && *read <= 1e9;
      if (good) share = *read;
    }
    if (!good) {
      return InvalidInput("{}: '{}' is not bytes from 1 to 1 GiB, with a share above 0 or without",
                          section.Where("size"), Printable(item, 40));
    }
    sum += share;
    load->sizes.emplace_back(*bytes, sum);
  }
  if (load->sizes.empty()) return InvalidInput("{}: no size", section.Where("size"));
  for (auto& [bytes, share] : load->sizes) share /= sum;
  load->sizes.back().second = 1;
  return {};
}

Status ReadLoad(const Section& section, bool trace, StorageLoadSettings* load) {
  load->requests = section.Has("requests") ? section.Integer("requests")
                   : trace                 ? 0
                                           : kDefaultRequests;
  load->clients = section.Has("clients") ? static_cast<int>(section.Integer("clients"))
                  : trace                ? 0
                                         : kDefaultClients;
  load->block = section.Integer("block");
  load->time_scale = section.Real("time_scale");
  load->reads = section.Real("reads");
  load->addresses = Choose(kAddresses, section.Text("addresses"));
  load->zipf = section.Real("zipf");
  load->disk = section.Integer("disk");
  load->open = section.Text("loop") == "open";
  load->poisson = section.Text("arrivals") == "poisson";
  load->rate = section.Real("rate");
  load->seed = static_cast<std::uint64_t>(section.Integer("seed"));
  if (trace) return {};
  ORRERY_RETURN_IF_ERROR(ReadSizes(section, load));
  for (const auto& [bytes, share] : load->sizes) {
    if (bytes <= load->disk) continue;
    return InvalidInput("{}: {} bytes do not fit a disk of {} (storage.disk)",
                        section.Where("size"), bytes, load->disk);
  }
  if (load->addresses == Addresses::kZipf && load->disk / section.Integer("slice") > kMostSlices) {
    return InvalidInput(
        "{}: {} bytes have more than {} slices of {}, which zipf ranks one by one; take a smaller "
        "disk or larger slices (storage.slice)",
        section.Where("disk"), load->disk, HumanCount(kMostSlices), section.Integer("slice"));
  }
  return {};
}

Status ReadService(const Section& section, DirectDriveSettings* s) {
  s->open = section.Text("loop") == "open";
  s->mount = section.Bool("mount");
  s->spread = section.Text("placement") == "spread";
  s->depth = static_cast<int>(section.Integer("depth"));
  s->think = section.Integer("think");
  s->coordinators = static_cast<int>(section.Integer("coordinators"));
  s->stores = static_cast<int>(section.Integer("stores"));
  s->replicas = static_cast<int>(section.Integer("replicas"));
  s->metadata = s->mount ? static_cast<int>(section.Integer("metadata")) : 0;
  s->gateways = s->mount ? static_cast<int>(section.Integer("gateways")) : 0;
  s->balancers = s->mount ? static_cast<int>(section.Integer("balancers")) : 0;
  s->lookup = Choose(kLookups, section.Text("lookup"));
  s->slice = section.Integer("slice");
  s->request_size = section.Integer("request_size");
  s->reply_size = section.Integer("reply_size");
  s->lookup_time = section.Integer("lookup_time");
  s->read_Bps = section.Integer("read_rate");
  s->write_Bps = section.Integer("write_rate");
  s->journal_Bps = section.Integer("journal_rate");
  s->read_latency = section.Integer("read_latency");
  s->write_latency = section.Integer("write_latency");
  s->collect_after = section.Integer("collect_after");
  s->collect_time = section.Integer("collect_time");
  const int each = s->stores / s->coordinators;
  if (each < s->replicas) {
    return InvalidInput(
        "{}: {} replicas need as many stores a coordinator, and {} stores give {} coordinators {}",
        section.Where("replicas"), s->replicas, s->stores, s->coordinators, each);
  }
  return {};
}

}  // namespace

const OptionTable& StorageOptions() { return kTable; }

Result<StorageSettings> ReadStorageSettings(const Section& section, bool trace) {
  ORRERY_RETURN_IF_ERROR(CheckKeys(section, trace));
  StorageSettings settings;
  ORRERY_RETURN_IF_ERROR(ReadLoad(section, trace, &settings.load));
  ORRERY_RETURN_IF_ERROR(ReadService(section, &settings.service));
  return settings;
}

Result<Section> ParseStorage(std::string_view text, const std::string& name) {
  ORRERY_ASSIGN_OR_RETURN(const formats::Document document, formats::ParseYaml(text, name));
  const formats::Node* keys = nullptr;
  for (const formats::Field& field : document.root.fields) {
    if (field.key != kTable.path) {
      return InvalidInput("{}: {}; --cluster, --network and --set say where it runs",
                          document.Where(field.value),
                          UnknownName("key", Printable(field.key), {{kTable.path}}));
    }
    keys = &field.value;
  }
  if (keys == nullptr) return InvalidInput("{}: no key 'storage'", Printable(name));
  return Section::Read(document, *keys, kTable);
}

}  // namespace orrery::workload
