// NCCL's environment variables that have an effect. Names and meanings: NCCL user guide of 2.30
// (env.rst) and src/ for the undocumented ones; those without effect: inert_variables.h.
#include <algorithm>
#include <array>
#include <charconv>
#include <limits>

#include "orrery/base/file.h"
#include "orrery/base/suggest.h"
#include "orrery/base/text.h"
#include "orrery/collective/choice/inert_variables.h"
#include "orrery/collective/choice/tuner.h"
#include "orrery/collective/collective.h"

namespace orrery::collective {
namespace {

using std::string_view;

constexpr std::int64_t kMostTunerBytes = 16 << 20;
constexpr int kMostSockets = 64;  // of a connection: NCCL's net_socket.cc
constexpr std::int64_t kMostGraphBytes = 4 << 20;

constexpr string_view kAlgorithms[] = {"Tree",     "Ring", "CollNetDirect", "CollNetChain", "NVLS",
                                       "NVLSTree", "PAT"};
constexpr string_view kProtocols[] = {"LL", "LL128", "Simple"};
constexpr string_view kFunctions[] = {"AllReduce", "AllGather", "ReduceScatter", "Broadcast",
                                      "Reduce"};
constexpr std::size_t kCollNetDirect = 2, kCollNetChain = 3, kNvls = 4, kNvlsTree = 5, kPat = 6;

std::vector<string_view> Split(string_view text, char at) {
  std::vector<string_view> parts;
  for (;;) {
    const std::size_t end = text.find(at);
    parts.push_back(Trimmed(text.substr(0, end), " "));
    if (end == string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

Result<std::size_t> Find(const char* kind, string_view name, std::span<const string_view> valid) {
  for (std::size_t i = 0; i < valid.size(); ++i) {
    if (Lower(valid[i]) == Lower(name)) return i;
  }
  return InvalidInput("{}", UnknownName(kind, name, valid));
}

// "Ring,Tree" or "^Tree": which of `valid` stay.
Result<std::vector<bool>> ParseList(const char* kind, string_view text,
                                    std::span<const string_view> valid, bool* negated) {
  *negated = !text.empty() && text.front() == '^';
  if (*negated) text.remove_prefix(1);
  std::vector<bool> chosen(valid.size(), *negated);
  for (string_view name : Split(text, ',')) {
    ORRERY_ASSIGN_OR_RETURN(const std::size_t index, Find(kind, name, valid));
    chosen[index] = !*negated;
  }
  return chosen;
}

// NCCL's grammar: list[;function:list…]; only the first entry may go without a function.
template <class Apply>
Status ParsePerFunction(const char* kind, string_view text, std::span<const string_view> valid,
                        Apply apply) {
  bool first = true;
  for (string_view entry : Split(text, ';')) {
    if (entry.empty()) continue;
    const std::size_t colon = entry.find(':');
    std::size_t from = 0, to = 4;
    if (colon != string_view::npos) {
      ORRERY_ASSIGN_OR_RETURN(from,
                              Find("function", Trimmed(entry.substr(0, colon), " "), kFunctions));
      to = from + 1;
      entry.remove_prefix(colon + 1);
    } else if (!first) {
      return InvalidInput("'{}' needs a function before it, as in AllReduce:{}", entry, entry);
    }
    first = false;
    bool negated = false;
    ORRERY_ASSIGN_OR_RETURN(const std::vector<bool> chosen,
                            ParseList(kind, Trimmed(entry, " "), valid, &negated));
    ORRERY_RETURN_IF_ERROR(apply(chosen, negated, from, std::min<std::size_t>(to, 4)));
  }
  return {};
}

Status ParseAlgorithms(string_view text, Environment* e) {
  return ParsePerFunction(
      "algorithm", text, kAlgorithms,
      [&](const std::vector<bool>& chosen, bool, std::size_t from, std::size_t to) {
        for (std::size_t c = from; c < to; ++c) {
          e->algorithm_allowed[c] = {chosen[0],
                                     chosen[1],
                                     true,
                                     chosen[kNvls],
                                     chosen[kNvlsTree],
                                     chosen[kPat],
                                     chosen[kCollNetDirect],
                                     chosen[kCollNetChain]};
        }
        return Status();
      });
}

Status ParseProtocols(string_view text, Environment* e) {
  return ParsePerFunction(
      "protocol", text, kProtocols,
      [&](const std::vector<bool>& chosen, bool, std::size_t from, std::size_t to) {
        for (std::size_t c = from; c < to; ++c)
          e->protocol_allowed[c] = {chosen[0], chosen[1], chosen[2]};
        e->protocol_forced = true;
        return Status();
      });
}

Result<std::int64_t> ParseNumber(string_view text, std::int64_t least, std::int64_t most) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) {
    return InvalidInput("'{}' is not a whole number", text);
  }
  if (value < least || value > most)
    return InvalidInput("{} is not in {} to {}", value, least, most);
  return value;
}

Status ParseVersion(string_view text, Environment* e) {
  const std::vector<string_view> parts = Split(text.substr(0, text.find('-')), '.');
  std::int64_t number[3] = {0, 0, 0};
  if (parts.size() < 2 || parts.size() > 3)
    return InvalidInput("'{}' is not a version like 2.22.3", text);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    ORRERY_ASSIGN_OR_RETURN(number[i], ParseNumber(parts[i], 0, 99));
  }
  if (number[0] != 2 || number[1] < 9)
    return InvalidInput("'{}' is not modelled; give 2.9 or later", text);
  e->version = static_cast<int>(number[0] * 10000 + number[1] * 100 + number[2]);
  e->version_stated = true;
  return {};
}

struct Number {
  string_view name;
  std::int64_t least, most;
  void (*set)(Environment*, std::int64_t);
};
constexpr std::int64_t kMany = std::int64_t{1} << 40;
// Of NCCL's pairs, the older *_NCHANNELS and the newer *_CTAS mean the same.
constexpr Number kNumbers[] = {
    {"NCCL_ALLOC_P2P_NET_LL_BUFFERS", 0, 1,
     [](Environment* e, std::int64_t v) { e->p2p_net_ll = v != 0; }},
    {"NCCL_CHUNK_SIZE", 0, kMany, [](Environment* e, std::int64_t v) { e->p2p_chunk_bytes = v; }},
    {"NCCL_COLLNET_ENABLE", 0, 1, [](Environment* e, std::int64_t v) { e->collnet = v != 0; }},
    {"NCCL_COLLNET_NODE_THRESHOLD", 0, 1 << 20,
     [](Environment* e, std::int64_t v) { e->collnet_domains = static_cast<int>(v); }},
    {"NCCL_BUFFSIZE", 1024, kMany, [](Environment* e, std::int64_t v) { e->buffer_bytes = v; }},
    {"NCCL_IB_ADAPTIVE_ROUTING", -2, 1,
     [](Environment* e, std::int64_t v) { e->adaptive_routing = static_cast<int>(v); }},
    {"NCCL_IB_AR_THRESHOLD", 0, std::int64_t{1} << 40,
     [](Environment* e, std::int64_t v) { e->adaptive_above = v; }},
    {"NCCL_IB_QPS_PER_CONNECTION", 1, 128,
     [](Environment* e, std::int64_t v) { e->queue_pairs = static_cast<int>(v); }},
    {"NCCL_LL128_BUFFSIZE", 8192, kMany,
     [](Environment* e, std::int64_t v) { e->ll128_buffer_bytes = v; }},
    {"NCCL_LL128_NTHREADS", 160, 640,
     [](Environment* e, std::int64_t v) { e->ll128_threads = static_cast<int>(v) / 32 * 32; }},
    {"NCCL_LL_BUFFSIZE", 1024, kMany,
     [](Environment* e, std::int64_t v) { e->ll_buffer_bytes = v; }},
    {"NCCL_MAX_CTAS", 1, 64,
     [](Environment* e, std::int64_t v) { e->max_channels = static_cast<int>(v); }},
    {"NCCL_MAX_NCHANNELS", 1, 64,
     [](Environment* e, std::int64_t v) { e->max_channels = static_cast<int>(v); }},
    {"NCCL_MAX_P2P_NCHANNELS", 1, 64,
     [](Environment* e, std::int64_t v) { e->max_p2p_channels = static_cast<int>(v); }},
    {"NCCL_MIN_CTAS", 1, 64,
     [](Environment* e, std::int64_t v) { e->min_channels = static_cast<int>(v); }},
    {"NCCL_MIN_NCHANNELS", 1, 64,
     [](Environment* e, std::int64_t v) { e->min_channels = static_cast<int>(v); }},
    {"NCCL_MIN_P2P_NCHANNELS", 1, 64,
     [](Environment* e, std::int64_t v) { e->min_p2p_channels = static_cast<int>(v); }},
    {"NCCL_MNNVL_ENABLE", 0, 2,
     [](Environment* e, std::int64_t v) { e->domains_of_hosts = v != 0; }},
    {"NCCL_NCHANNELS_PER_NET_PEER", -1, 64,
     [](Environment* e, std::int64_t v) { e->channels_per_net_peer = static_cast<int>(v); }},
    {"NCCL_NET_OVERHEAD", -1, 1'000'000'000,
     [](Environment* e, std::int64_t v) { e->net_overhead_ns = static_cast<int>(v); }},
    {"NCCL_NTHREADS", 64, 512,
     [](Environment* e, std::int64_t v) { e->threads = static_cast<int>(v) / 32 * 32; }},
    {"NCCL_NVLSTREE_MAX_CHUNKSIZE", 4096, kMany,
     [](Environment* e, std::int64_t v) { e->nvls_tree_chunk_bytes = v; }},
    {"NCCL_NVLS_CHUNKSIZE", 4096, kMany,
     [](Environment* e, std::int64_t v) { e->nvls_chunk_bytes = v; }},
    {"NCCL_NVLS_NCHANNELS", 1, 64,
     [](Environment* e, std::int64_t v) { e->nvls_channels = static_cast<int>(v); }},
    {"NCCL_NVLS_ENABLE", 0, 2, [](Environment* e, std::int64_t v) { e->nvls = e->nvls && v != 0; }},
    {"NCCL_NSOCKS_PERTHREAD", 1, 64,
     [](Environment* e, std::int64_t v) { e->sockets_per_thread = static_cast<int>(v); }},
    {"NCCL_SOCKET_NTHREADS", 1, 16,
     [](Environment* e, std::int64_t v) { e->socket_threads = static_cast<int>(v); }},
    {"NCCL_P2P_LL_THRESHOLD", 0, kMany,
     [](Environment* e, std::int64_t v) { e->p2p_ll_threshold_bytes = v; }},
    {"NCCL_P2P_NET_CHUNKSIZE", 4096, kMany,
     [](Environment* e, std::int64_t v) { e->p2p_net_chunk_bytes = v; }},
    {"NCCL_P2P_NVL_CHUNKSIZE", 4096, kMany,
     [](Environment* e, std::int64_t v) { e->p2p_nvl_chunk_bytes = v; }},
    {"NCCL_P2P_PCI_CHUNKSIZE", 4096, kMany,
     [](Environment* e, std::int64_t v) { e->p2p_pci_chunk_bytes = v; }},
    {"NCCL_P2P_PER_CHANNEL_NET_BW", 1, 1000,
     [](Environment* e, std::int64_t v) { e->p2p_channel_GBps = static_cast<int>(v); }},
    // Level 1 is for NICs that a GPU does not reach itself: here it reaches its own.
    {"NCCL_P2P_PXN_LEVEL", 0, 2, [](Environment* e, std::int64_t v) { e->pxn = e->pxn && v == 2; }},
    {"NCCL_P2P_SCHEDULE_GROUP_SIZE", 1, 1024,
     [](Environment* e, std::int64_t v) { e->p2p_group = static_cast<int>(v); }},
    {"NCCL_PXN_DISABLE", 0, 1, [](Environment* e, std::int64_t v) { e->pxn = e->pxn && v == 0; }},
    {"ORRERY_CHANNEL_GBPS", 1, 1'000'000,
     [](Environment* e, std::int64_t v) { e->steps.channel_Bps = v * 1'000'000'000; }},
    {"ORRERY_POST_NETWORK_NS", 0, 1'000'000'000,
     [](Environment* e, std::int64_t v) { e->steps.post_network = v * kNanosecond; }},
    {"ORRERY_POST_NVLINK_NS", 0, 1'000'000'000,
     [](Environment* e, std::int64_t v) { e->steps.post_nvlink = v * kNanosecond; }},
    {"ORRERY_RING_SLICES", 1, 4,
     [](Environment* e, std::int64_t v) { e->ring_slices = static_cast<int>(v); }},
    {"ORRERY_SETUP_NS", 0, 1'000'000'000,
     [](Environment* e, std::int64_t v) { e->steps.setup = v * kNanosecond; }},
    {"ORRERY_SYNC_NS", 0, 1'000'000'000,
     [](Environment* e, std::int64_t v) { e->steps.sync = v * kNanosecond; }},
    {"NCCL_PAT_ENABLE", 0, 2, [](Environment* e, std::int64_t v) { e->pat = e->pat && v != 0; }},
};

// Up to six numbers with blanks between: trees by protocol, then rings; what is left out, or below
// 0, stays NCCL's.
Status ParseThresholds(string_view text, Environment* e) {
  std::size_t count = 0;
  for (string_view number : Split(text, ' ')) {
    if (number.empty()) continue;
    if (count == 6) return InvalidInput("'{}': more than 6 numbers", text);
    ORRERY_ASSIGN_OR_RETURN(const std::int64_t value, ParseNumber(number, -2, 1 << 30));
    if (value >= 0) e->thread_thresholds[count / 3][count % 3] = value;
    ++count;
  }
  return {};
}

// What a job's cluster must agree with (job: ReadNccl).
void ReadTransport(string_view name, string_view value, Environment* e) {
  if (name == "NCCL_IB_DISABLE") e->sockets |= value == "1";
  if (name == "NCCL_NET") {
    e->sockets |= Lower(value) == "socket";
    e->verbs |= Lower(value) == "ib";
  }
  if (name == "NCCL_P2P_LEVEL") e->peer_level = true;
  if (name == "NCCL_TUNER_PLUGIN") e->tuner_plugin = Lower(value) != "none";
}

Status ParseOne(string_view name, string_view value, Environment* e) {
  if (name == "NCCL_ALGO") return ParseAlgorithms(value, e);
  if (name == "NCCL_PROTO") return ParseProtocols(value, e);
  if (name == "NCCL_VERSION") return ParseVersion(value, e);
  if (name == "NCCL_TUNER_CONFIG_FILE") {
    const std::string path(value);
    ORRERY_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMostTunerBytes));
    ORRERY_ASSIGN_OR_RETURN(e->tuner, ParseTunerFile(text, path));
    return {};
  }
  if (name == "NCCL_GRAPH_FILE") {
    const std::string path(value);
    ORRERY_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMostGraphBytes));
    ORRERY_ASSIGN_OR_RETURN(e->graphs, ParseGraphFile(text, path));
    return {};
  }
  if (name == "NCCL_THREAD_THRESHOLDS") return ParseThresholds(value, e);
  for (const Number& number : kNumbers) {
    if (number.name != name) continue;
    ORRERY_ASSIGN_OR_RETURN(const std::int64_t parsed,
                            ParseNumber(value, number.least, number.most));
    number.set(e, parsed);
    return {};
  }
  if (std::ranges::find(IrrelevantVariables(), name) != IrrelevantVariables().end()) return {};
  if (const InertVariable* noted = FindInert(name)) {
    ORRERY_RETURN_IF_ERROR(CheckInert(*noted, value));
    e->noted.emplace_back(name);
    ReadTransport(name, value, e);
    return {};
  }
  std::vector<string_view> valid = {"NCCL_ALGO",
                                    "NCCL_PROTO",
                                    "NCCL_VERSION",
                                    "NCCL_GRAPH_FILE",
                                    "NCCL_THREAD_THRESHOLDS",
                                    "NCCL_TUNER_CONFIG_FILE"};
  for (const Number& number : kNumbers) valid.push_back(number.name);
  const std::vector<string_view> modelled = valid;
  for (const InertVariable& noted : InertVariables()) valid.push_back(noted.name);
  valid.insert(valid.end(), IrrelevantVariables().begin(), IrrelevantVariables().end());
  constexpr string_view kPrefix = "NCCL_";  // which all have, and docs/ leave out
  const auto bare = [&](string_view v) {
    return v.starts_with(kPrefix) ? v.substr(kPrefix.size()) : v;
  };
  for (string_view& v : valid) v = bare(v);
  const std::vector<std::string> near = Nearest(bare(name), valid, 1);
  if (!near.empty()) {
    return InvalidInput("unknown variable; did you mean {}{}?", kPrefix, near[0]);
  }
  std::string list;
  for (string_view m : modelled) list += list.empty() ? std::string(m) : ", " + std::string(m);
  return InvalidInput("unknown variable; modelled: {}", list);
}

}  // namespace

Result<Environment> ParseEnvironment(std::span<const std::pair<std::string, std::string>> variables,
                                     std::shared_ptr<const nccl::Releases> releases) {
  Environment environment;
  environment.releases = std::move(releases);
  for (const auto& [name, value] : variables) {
    ORRERY_RETURN_IF_ERROR(ParseOne(name, Trimmed(value, " "), &environment).In(name));
  }
  if (!environment.tuner.empty()) std::erase(environment.noted, "NCCL_TUNER_PLUGIN");
  std::sort(environment.noted.begin(), environment.noted.end());
  if (environment.min_channels > environment.max_channels) {
    return InvalidInput("NCCL_MIN_CTAS: {} is above NCCL_MAX_CTAS = {}", environment.min_channels,
                        environment.max_channels);
  }
  if (environment.socket_threads * environment.sockets_per_thread > kMostSockets) {
    return InvalidInput(
        "NCCL_NSOCKS_PERTHREAD: {} for each of NCCL_SOCKET_NTHREADS = {} threads are more than {} "
        "sockets; lower one",
        environment.sockets_per_thread, environment.socket_threads, kMostSockets);
  }
  if (environment.min_p2p_channels > environment.max_p2p_channels) {
    return InvalidInput("NCCL_MIN_P2P_NCHANNELS: {} is above NCCL_MAX_P2P_NCHANNELS = {}",
                        environment.min_p2p_channels, environment.max_p2p_channels);
  }
  return environment;
}

}  // namespace orrery::collective
