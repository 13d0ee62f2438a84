#include "orrery/collective/choice/releases.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>

#include "orrery/base/suggest.h"
#include "orrery/base/text.h"
#include "orrery/base/units.h"
#include "orrery/formats/section.h"

namespace orrery::collective::nccl {
namespace {

using formats::Node;

constexpr std::string_view kText[] = {
#include "orrery_data_nccl.inc"
};

struct Switch {
  std::string_view name;
  bool Release::*member;
};
constexpr Switch kSwitches[] = {
#define ORRERY_NCCL_SWITCH(name, doc) {#name, &Release::name},
#include "orrery/collective/choice/release_switches.inc"
#undef ORRERY_NCCL_SWITCH
};
struct Number {
  std::string_view name;
  double Release::*member;
};
constexpr Number kNumbers[] = {{"ll_step_factor", &Release::ll_step_factor},
                               {"ll_share", &Release::ll_share},
                               {"ll_share_inside", &Release::ll_share_inside},
                               {"lone_ll128_share", &Release::lone_ll128_share},
                               {"nvls_gather_share", &Release::nvls_gather_share},
                               {"doubles_below", &Release::doubles_below}};
constexpr Option kNumber{.name = "number", .type = OptionType::kNumber, .min = 0, .max = 1e9};
constexpr Option kBool{.name = "switch", .type = OptionType::kBool};

// Reads a row: every value is required but switches, so that a row that is like none is whole.
class Reader {
 public:
  explicit Reader(const formats::Document& document) : document_(document) {}

  // The value under a key of `map`; null, and an error, where there is none or it is of another
  // kind.
  const Node* Take(const Node& map, std::string_view key, Node::Kind kind) {
    const Node* const node = map.Find(key);
    if (node == nullptr) {
      Fail(InvalidInput("{}: lacks {}", document_.Where(map), key));
    } else if (node->kind != kind) {
      Fail(InvalidInput("{}: {} takes {}", document_.Where(*node), key,
                        kind == Node::Kind::kMap    ? "keys with values"
                        : kind == Node::Kind::kList ? "a list of numbers"
                                                    : "one value"));
    } else {
      return node;
    }
    return nullptr;
  }
  void Real(const Node& map, std::string_view key, double* out) {
    if (const Node* node = Take(map, key, Node::Kind::kScalar)) *out = RealOf(*node);
  }
  void List(const Node& map, std::string_view key, std::vector<double>* out) {
    const Node* const node = Take(map, key, Node::Kind::kList);
    if (node == nullptr) return;
    for (const Node& item : node->items) out->push_back(RealOf(item));
    if (out->empty()) Fail(InvalidInput("{}: {} is empty", document_.Where(*node), key));
  }
  template <std::size_t kSize>
  void List(const Node& map, std::string_view key, std::array<double, kSize>* out) {
    std::vector<double> values;
    List(map, key, &values);
    if (values.size() == kSize) {
      std::ranges::copy(values, out->begin());
    } else if (status_.ok()) {
      Fail(InvalidInput("{}: {} takes {} numbers, not {}", document_.Where(*map.Find(key)), key,
                        kSize, values.size()));
    }
  }
  void Flag(const Node& map, std::string_view key, bool* out) {
    const Node* const node = map.Find(key);
    if (node == nullptr) return;
    Result<OptionValue> value = formats::ReadOption(kBool, *node);
    if (value.ok()) *out = std::get<bool>(*value);
    if (!value.ok()) Fail(std::move(value).TakeStatus().In(document_.Where(*node)));
  }
  // Unknown keys of a map.
  void Known(const Node& map, const std::vector<std::string_view>& keys) {
    for (const formats::Field& field : map.fields) {
      if (std::ranges::find(keys, field.key) != keys.end()) continue;
      Fail(InvalidInput("{}: {}", document_.Where(field),
                        UnknownName("key", Printable(field.key, 60), keys)));
    }
  }
  void Fail(Status status) {
    if (status_.ok()) status_ = std::move(status);
  }
  const Status& status() const { return status_; }

 private:
  double RealOf(const Node& node) {
    Result<OptionValue> value = formats::ReadOption(kNumber, node);
    if (value.ok()) return std::get<double>(*value);
    Fail(std::move(value).TakeStatus().In(document_.Where(node)));
    return 0;
  }

  const formats::Document& document_;
  Status status_;
};

// "2.28.7" → 22807; 0: it is no release.
int VersionOf(std::string_view text) {
  std::array<std::int64_t, 3> parts{};
  for (std::size_t i = 0; i < parts.size() && !text.empty(); ++i) {
    const std::size_t dot = std::min(text.find('.'), text.size());
    const Result<std::int64_t> part = ParseInteger(text.substr(0, dot));
    if (!part.ok() || *part < 0 || *part > 99) return 0;
    parts[i] = *part;
    text.remove_prefix(std::min(dot + 1, text.size()));
  }
  if (!text.empty() || parts[0] != 2) return 0;
  return static_cast<int>(parts[0] * 10'000 + parts[1] * 100 + parts[2]);
}

void ReadGeneration(const Node& map, Reader* in, Generation* g) {
  in->Known(map, {"release", "most_ll", "ring_ll128", "tree_ll128", "tree_simple", "nvls_tree",
                  "nvls_efficiency", "plateau", "most_bus", "steps", "steps_between",
                  "nvlink_factor", "nvls_channels", "efa_latency"});
  if (const Node* release = map.Find("release")) {
    g->release = VersionOf(release->text);
    if (g->release == 0) {
      in->Fail(
          InvalidInput("release: '{}' is no release such as 2.28.7", Printable(release->text, 20)));
    }
  }
  in->Real(map, "most_ll", &g->most_ll);
  in->List(map, "ring_ll128", &g->ring_ll128);
  in->List(map, "tree_ll128", &g->tree_ll128);
  in->List(map, "tree_simple", &g->tree_simple);
  in->List(map, "nvls_tree", &g->nvls_tree);
  in->Real(map, "nvls_efficiency", &g->nvls_efficiency);
  in->Real(map, "plateau", &g->plateau);
  if (map.Find("most_bus") != nullptr) in->Real(map, "most_bus", &g->most_bus);
  in->List(map, "steps", &g->steps);
  in->List(map, "steps_between", &g->steps_between);
  if (map.Find("nvlink_factor") != nullptr) in->Real(map, "nvlink_factor", &g->nvlink_factor);
  in->List(map, "nvls_channels", &g->nvls_channels);
  in->Real(map, "efa_latency", &g->efa_latency);
}

void ReadLatencies(const Node& keys, Reader* in, Release* r) {
  const std::pair<std::string_view, std::array<ByProtocol, 2>*> tables[] = {
      {"base", &r->base}, {"nvlink", &r->nvlink}, {"pci", &r->pci}, {"net", &r->net}};
  for (const auto& [key, table] : tables) {
    const Node* const map = in->Take(keys, key, Node::Kind::kMap);
    if (map == nullptr) return;
    in->Known(*map, {"tree", "ring"});
    in->List(*map, "tree", &(*table)[0]);
    in->List(*map, "ring", &(*table)[1]);
  }
  if (const Node* nvls = in->Take(keys, "nvls", Node::Kind::kMap)) {
    in->Known(*nvls, {"nvlink", "net", "tree_net"});
    in->Real(*nvls, "nvlink", &r->nvls_nvlink);
    in->Real(*nvls, "net", &r->nvls_net);
    in->Real(*nvls, "tree_net", &r->nvls_tree_net);
  }
  if (const Node* collnet = in->Take(keys, "collnet", Node::Kind::kMap)) {
    in->Known(*collnet, {"direct_nvlink", "chain_nvlink", "direct_net", "chain_net"});
    in->Real(*collnet, "direct_nvlink", &r->collnet_direct_nvlink);
    in->Real(*collnet, "chain_nvlink", &r->collnet_chain_nvlink);
    in->Real(*collnet, "direct_net", &r->collnet_direct_net);
    in->Real(*collnet, "chain_net", &r->collnet_chain_net);
  }
  if (const Node* most = in->Take(keys, "most_ll", Node::Kind::kMap)) {
    in->Known(*most, {"intel", "amd"});
    in->List(*most, "intel", &r->most_ll[0]);
    in->List(*most, "amd", &r->most_ll[1]);
  }
  if (const Node* correction = in->Take(keys, "tree_correction", Node::Kind::kMap)) {
    in->Known(*correction, {"ll", "ll128", "simple"});
    in->List(*correction, "ll", &r->tree_correction[0]);
    in->List(*correction, "ll128", &r->tree_correction[1]);
    in->List(*correction, "simple", &r->tree_correction[2]);
  }
}

Result<Release> ReadRelease(const formats::Document& document, const formats::DataRow& row) {
  Release r;
  r.name = row.name;
  r.version = VersionOf(row.name);
  Node keys = row.keys;
  keys.line = row.line;
  if (r.version == 0) {
    return InvalidInput("{}: the row '{}' is no release; name it as NCCL does, such as 2.31.1",
                        document.Where(keys), Printable(row.name, 40));
  }
  constexpr std::string_view kGenerations[] = {"volta", "ampere", "hopper", "blackwell"};
  std::vector<std::string_view> known = {"base", "nvlink",  "pci",     "net",
                                         "nvls", "collnet", "most_ll", "tree_correction"};
  for (const Number& number : kNumbers) known.push_back(number.name);
  for (const Switch& s : kSwitches) known.push_back(s.name);
  known.insert(known.end(), std::begin(kGenerations), std::end(kGenerations));
  Reader in(document);
  in.Known(keys, known);
  ReadLatencies(keys, &in, &r);
  for (const Number& number : kNumbers) in.Real(keys, number.name, &(r.*number.member));
  for (const Switch& s : kSwitches) in.Flag(keys, s.name, &(r.*s.member));
  for (std::size_t i = 0; i < r.generations.size(); ++i) {
    const Node* const map = in.Take(keys, kGenerations[i], Node::Kind::kMap);
    if (map != nullptr) ReadGeneration(*map, &in, &r.generations[i]);
  }
  if (!in.status().ok()) return in.status();
  return r;
}

}  // namespace

const Releases& Releases::BuiltIn() {
  static const Releases releases = formats::Embedded<Releases>(kText, "data/nccl.yaml");
  return releases;
}

Status Releases::Add(std::string_view text, const std::string& file) {
  std::size_t next = rows_.rows().size();
  ORRERY_RETURN_IF_ERROR(rows_.Add(text, file));
  for (; next < rows_.rows().size(); ++next) {
    const formats::DataRow& row = rows_.rows()[next];
    if (row.part()) continue;
    ORRERY_ASSIGN_OR_RETURN(Release release, ReadRelease(rows_.document(), row));
    const auto at = std::ranges::lower_bound(releases_, release.version, {},
                                             [](const auto& r) { return r->version; });
    if (at != releases_.end() && (*at)->version == release.version) {
      return InvalidInput("{}:{}: the release '{}' is there already, as '{}'", file, row.line,
                          Printable(row.name, 40), (*at)->name);
    }
    releases_.insert(at, std::make_shared<const Release>(std::move(release)));
  }
  return {};
}

const Release& Releases::At(int version) const {
  const auto later =
      std::ranges::upper_bound(releases_, version, {}, [](const auto& r) { return r->version; });
  return **(later == releases_.begin() ? later : later - 1);
}

}  // namespace orrery::collective::nccl
