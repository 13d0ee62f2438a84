#include "orrery/workload/importers/storage/load.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "orrery/base/exp_log.h"
#include "orrery/base/rng.h"
#include "orrery/base/text.h"

namespace orrery::workload {
namespace {

using Addresses = StorageLoadSettings::Addresses;

// Ranks of popularity: what the first k together are asked for, of 1.
std::vector<double> ZipfShares(std::int64_t slices, double exponent) {
  std::vector<double> shares(static_cast<std::size_t>(slices));
  double sum = 0;
  for (std::size_t k = 0; k < shares.size(); ++k) {
    // k^-s = e^(-s ln k)
    sum += ExpMinus(exponent * MinusLog(1.0 / static_cast<double>(k + 1)));
    shares[k] = sum;
  }
  for (double& share : shares) share /= sum;
  return shares;
}

// What is drawn of one client's requests.
class Draws {
 public:
  Draws(const StorageLoadSettings& settings, std::int64_t slice)
      : s_(settings), slice_(std::min(slice, settings.disk)), rng_(settings.seed) {
    if (s_.addresses == Addresses::kZipf) {
      shares_ = ZipfShares(std::max<std::int64_t>(1, s_.disk / slice_), s_.zipf);
    }
    next_.resize(static_cast<std::size_t>(s_.clients), 0);
  }

  SimTime Gap() { return FromSeconds((s_.poisson ? MinusLog(1 - rng_.Unit()) : 1) / s_.rate); }
  std::uint32_t Client() {
    return static_cast<std::uint32_t>(rng_.Below(static_cast<std::uint64_t>(s_.clients)));
  }
  void Fill(StorageRequest* r) {
    r->write = rng_.Unit() >= s_.reads;
    const double share = rng_.Unit();
    r->bytes = std::find_if(s_.sizes.begin(), s_.sizes.end(), [&](const auto& size) {
                 return share < size.second;
               })->first;
    r->offset = Offset(*r);
  }

 private:
  std::int64_t Offset(const StorageRequest& r) {
    switch (s_.addresses) {
      case Addresses::kUniform:
        return Place(0, s_.disk, r.bytes);
      case Addresses::kZipf: {
        const auto rank = std::upper_bound(shares_.begin(), shares_.end() - 1, rng_.Unit());
        // Popular slices lie anywhere on the disk, elsewhere on each client's.
        const auto all = static_cast<std::int64_t>(shares_.size());
        const std::int64_t shift = static_cast<std::int64_t>(Mix64(s_.seed + r.client) >> 2) % all;
        const std::int64_t slice = ((rank - shares_.begin()) + shift) % all;
        return Place(slice * slice_, slice_, r.bytes);
      }
      case Addresses::kSequential:
        break;
    }
    std::int64_t& next = next_[r.client];
    if (next + r.bytes > s_.disk) next = 0;
    return std::exchange(next, next + r.bytes);
  }
  // Drawn among the multiples of `bytes` in [from, from + size), inside the disk.
  std::int64_t Place(std::int64_t from, std::int64_t size, std::int64_t bytes) {
    const std::int64_t places = std::max<std::int64_t>(1, size / bytes);
    const auto place = static_cast<std::int64_t>(rng_.Below(static_cast<std::uint64_t>(places)));
    return std::min(from + place * bytes, s_.disk - bytes);
  }

  const StorageLoadSettings& s_;
  const std::int64_t slice_;
  CounterRng rng_;
  std::vector<double> shares_;      // zipf
  std::vector<std::int64_t> next_;  // sequential, by client
};

}  // namespace

Result<StorageLoad> LoadOfTrace(const std::vector<formats::SpcRequest>& trace,
                                const StorageLoadSettings& settings) {
  StorageLoad load;
  std::vector<std::uint32_t> disk;  // by ASU
  for (const formats::SpcRequest& r : trace) {
    if (r.asu >= disk.size()) disk.resize(std::size_t{r.asu} + 1, 0);
    disk[r.asu] = 1;
  }
  std::uint32_t disks = 0;
  for (std::uint32_t& d : disk) d = d == 1 ? disks++ : 0;
  load.clients = settings.clients > 0 ? static_cast<std::uint32_t>(settings.clients) : disks;
  if (load.clients > disks) {
    return InvalidInput("storage.clients: the trace has {} disks, too few for {} clients", disks,
                        load.clients);
  }
  const SimTime first = std::ranges::min(trace, {}, &formats::SpcRequest::at).at;
  std::size_t late = 0;
  load.requests.reserve(trace.size());
  for (const formats::SpcRequest& r : trace) {
    StorageRequest out;
    out.at = r.at - first;
    if (settings.time_scale != 1) {
      out.at = RoundToPs(static_cast<double>(out.at) * settings.time_scale);
    }
    out.disk = disk[r.asu];
    out.client = out.disk % load.clients;
    out.offset = r.lba * settings.block;
    out.bytes = r.bytes;
    out.write = r.write;
    if (!load.requests.empty() && out.at < load.requests.back().at) ++late;
    load.requests.push_back(out);
  }
  if (late > 0) {
    std::ranges::stable_sort(load.requests, {}, &StorageRequest::at);
    load.warnings.push_back(
        fmt::format("{} requests of the trace are earlier than the one before them: all are taken "
                    "in the order of their times",
                    HumanCount(static_cast<std::int64_t>(late))));
  }
  return load;
}

StorageLoad DrawLoad(const StorageLoadSettings& settings, std::int64_t slice) {
  StorageLoad load;
  load.clients = static_cast<std::uint32_t>(settings.clients);
  load.requests.resize(static_cast<std::size_t>(settings.requests));
  Draws draws(settings, slice);
  SimTime at = 0;
  for (std::size_t i = 0; i < load.requests.size(); ++i) {
    StorageRequest& r = load.requests[i];
    if (settings.open && i > 0) at = std::min(at + draws.Gap(), kMaxDuration);
    r.at = at;
    r.client = r.disk =
        settings.open ? draws.Client() : static_cast<std::uint32_t>(i) % load.clients;
    draws.Fill(&r);
  }
  return load;
}

}  // namespace orrery::workload
