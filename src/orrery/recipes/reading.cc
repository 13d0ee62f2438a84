#include "orrery/recipes/reading.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <limits>
#include <system_error>

#include "orrery/base/check.h"
#include "orrery/base/file.h"
#include "orrery/base/suggest.h"
#include "orrery/base/text.h"
#include "orrery/base/units.h"
#include "orrery/job/straddling_groups.h"

namespace orrery::recipes {
namespace {

constexpr std::size_t kMostShown = 20;  // problems of one recipe

bool SameArgument(const Given& given, const std::string& name) {
  if (given.name == name || given.row->argument == name) return true;
  return std::ranges::find(given.row->also, name) != given.row->also.end();
}

std::string Joined(const std::vector<Word>& values) {
  std::string joined;
  for (const Word& value : values) joined += (joined.empty() ? "" : " ") + value.text;
  return joined;
}

// A value in the job's words: "LayerNorm=layernorm" of "LayerNorm"; nullopt: none of them.
std::optional<std::string> Mapped(const Row& row, const std::string& value) {
  if (row.values.empty()) return value;
  for (const std::string& entry : row.values) {
    const std::size_t equals = entry.find('=');
    if (entry.substr(0, equals) != value) continue;
    return equals == std::string::npos ? value : entry.substr(equals + 1);
  }
  return std::nullopt;
}

std::vector<std::string> Accepted(const Row& row) {
  std::vector<std::string> values;
  for (const std::string& entry : row.values) values.push_back(entry.substr(0, entry.find('=')));
  return values;
}

bool IsNumber(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

void Reading::AddUnknown(const std::string& name, const std::string& where, const Tables& tables) {
  const auto left = [&](std::string_view what) {
    return std::ranges::find(options_.leave_out, what) != options_.leave_out.end();
  };
  if (left(name) || (!name.empty() && left(kUnknown))) {
    draft_.Assume(fmt::format("{} of {} is left out: it is not known", name, file_));
    uses_.push_back({.argument = name,
                     .where = where,
                     .effect = Effect::kRefused,
                     .why = "not known; left out"});
    return;
  }
  if (name.empty()) {
    problems_.push_back(fmt::format(
        "{}: a value without a name; is the file of the kind that --from names?", where));
    return;
  }
  std::vector<std::string_view> names;
  for (const Table* table : tables) std::ranges::copy(table->Names(), std::back_inserter(names));
  const std::vector<std::string> near = Nearest(Printable(name), names, 3);
  std::string text = fmt::format("{}: unknown argument '{}'", where, Printable(name));
  if (!near.empty()) text += fmt::format("; did you mean '{}'?", fmt::join(near, "' or '"));
  problems_.push_back(text + fmt::format("; --leave-out {} goes on without it", Printable(name)));
  ++unknown_;
}

bool Reading::Mean(Given* given) {
  const Row& row = *given->row;
  if (row.effect != Effect::kRule || row.key.empty()) return true;
  const Row* other = FindRow(row.key);
  ORRERY_CHECK(other != nullptr, "a rule's key is an argument of one of the tables");
  const bool inverse = row.values == std::vector<std::string>{"not"};
  if (row.flag()) given->values = {{.text = given->on ? "true" : "false"}};
  given->row = other;
  if (!inverse && !row.values.empty()) {
    const std::string said = Joined(given->values);
    const std::optional<std::string> mapped = Mapped(row, said);
    if (!mapped) {
      NotModelled(*given, row, said);
      return false;
    }
    if (mapped->empty()) {
      uses_.push_back({.argument = given->name,
                       .value = said,
                       .where = given->where,
                       .effect = Effect::kInert,
                       .why = "the value that changes nothing"});
      return false;
    }
    given->values = {{.text = *mapped}};
  }
  if (!other->flag()) return true;
  const std::string value = Lower(Joined(given->values));
  given->on = (value == "true" || value == "yes" || value == "on" || value == "1") != inverse;
  given->values.clear();
  return true;
}

void Reading::NotModelled(const Given& given, const Row& row, const std::string& value) {
  problems_.push_back(fmt::format(
      "{}: {} {} is not modelled; modelled: {}; --leave-out {} goes on without it", given.where,
      given.name, Printable(value, 60), fmt::join(Accepted(row), ", "), given.name));
}

void Reading::Add(Given given) {
  if (!LeftOut(given) && !Mean(&given)) return;
  const std::string& key = given.row->many() ? given.name : given.row->argument;
  const auto [at, fresh] = index_.emplace(key, given_.size());
  if (fresh) {
    given_.push_back(std::move(given));
  } else {
    given_[at->second] = std::move(given);  // the last one counts, as in argparse
  }
}

void Reading::AddAs(std::string_view argument, std::string name, std::string value,
                    std::string where) {
  Given given{.name = std::move(name), .row = FindRow(argument), .where = std::move(where)};
  ORRERY_CHECK(given.row != nullptr, "one of the tables has the argument");
  if (given.row->flag()) {
    given.on = value != "false";
  } else {
    given.values.push_back({.text = std::move(value)});
  }
  Add(std::move(given));
}

bool Reading::LeftOut(const Given& given) const {
  return std::ranges::any_of(options_.leave_out,
                             [&](const std::string& name) { return SameArgument(given, name); });
}

std::optional<std::string> Reading::Value(const Given& given) {
  if (given.row->flag()) return given.on ? "true" : "false";
  for (const Word& value : given.values) {
    if (value.unknown.empty()) continue;
    const bool number = value.unknown.find_first_not_of("0123456789") == std::string::npos;
    const bool command = value.unknown.find(' ') != std::string::npos;
    const std::string unknown = Printable(value.unknown, 60);
    problems_.push_back(fmt::format(
        "{}: {} is {}, {}", given.where, given.name, Printable(value.text, 80),
        command  ? fmt::format("which hangs on {}; write its value into the script", unknown)
        : number ? fmt::format("and {} is not set; give --args 'ONE TWO …', what the script is "
                               "started with",
                               unknown)
                 : fmt::format("and {} is not set; give --env {}=VALUE", unknown, unknown)));
    return std::nullopt;
  }
  return Joined(given.values);
}

void Reading::Translate() {
  for (const Given& given : given_) TranslateOne(given);
}

std::optional<bool> Reading::Harmless(const Given& given) {
  const Row& row = *given.row;
  const std::optional<std::string> value = Value(given);
  if (!value) return std::nullopt;
  return (row.flag() && !given.on) || std::ranges::find(row.values, *value) != row.values.end();
}

void Reading::Suppose(std::string_view argument, std::string_view why, std::string_view key) {
  if (IsSet(key)) return;
  draft_.Assume(fmt::format("{}: {}; --set {}=N says otherwise", argument, why, key));
}

void Reading::TranslateOne(const Given& given) {
  const Row& row = *given.row;
  Use use{.argument = given.name,
          .value = row.flag() ? (given.on ? "" : "false") : Joined(given.values),
          .where = given.where,
          .effect = row.effect,
          .key = row.key,
          .why = row.why};
  if (LeftOut(given)) {
    use.effect = Effect::kRefused;
    use.why = row.why.empty() ? "left out" : row.why;
    draft_.Assume(fmt::format("{}{}{} of {} is left out{}{}", given.name,
                              use.value.empty() ? "" : " ", use.value, file_,
                              row.why.empty() ? "" : ": ", row.why));
    uses_.push_back(std::move(use));
    return;
  }
  if (row.effect == Effect::kJob) {
    const std::optional<std::string> value = Value(given);
    if (!value) return;
    if (row.flag()) {
      // A flag that is said to be off changes nothing: that is the framework's own default.
      if (given.on) draft_.Set(row.key, row.values.empty() ? "true" : row.values.front());
    } else if (const auto mapped = Mapped(row, *value)) {
      if (IsNumber(*mapped) || *mapped == "true" || *mapped == "false") {
        draft_.Set(row.key, *mapped);
      } else {
        draft_.SetText(row.key, *mapped);
      }
    } else {
      NotModelled(given, row, *value);
    }
    draft_.SaidBy(row.key, fmt::format("{}: {}", given.where, given.name));
  } else if (row.effect == Effect::kRefused || row.effect == Effect::kAssumed) {
    const std::optional<bool> harmless = Harmless(given);
    if (!harmless) return;
    if (*harmless) {
      use.effect = Effect::kInert;
      use.key.clear();
      use.why = "the value that changes nothing";
    } else if (row.effect == Effect::kAssumed) {
      Suppose(given.name, row.why, row.key);
    } else {
      problems_.push_back(fmt::format("{}: {}{}{}: {}; --leave-out {} goes on without it",
                                      given.where, given.name, use.value.empty() ? "" : " ",
                                      Printable(use.value, 60), row.why, given.name));
    }
  }
  uses_.push_back(std::move(use));
}

const Row* Reading::FindRow(std::string_view argument) const {
  return orrery::recipes::FindRow(tables_, argument);
}

const Given* Reading::Find(std::string_view argument) {
  asked_.emplace(argument);
  const auto found = index_.find(argument);
  if (found == index_.end() || LeftOut(given_[found->second])) return nullptr;
  return &given_[found->second];
}

bool Reading::On(std::string_view argument) {
  const Given* given = Find(argument);
  return given != nullptr && given->on;
}

std::string Reading::Text(std::string_view argument) {
  const Given* given = Find(argument);
  if (given != nullptr) return Value(*given).value_or("");
  const Row* row = FindRow(argument);
  return row == nullptr || row->fallback == "None" ? "" : row->fallback;
}

std::string Reading::TextIfKnown(std::string_view argument) {
  const Given* given = Find(argument);
  const bool known = given == nullptr || std::ranges::all_of(given->values, [](const Word& word) {
                       return word.unknown.empty();
                     });
  return known ? Text(argument) : "";
}

std::vector<std::string> Reading::Texts(std::string_view argument) {
  std::vector<std::string> texts;
  const Given* given = Find(argument);
  if (given == nullptr || !Value(*given)) return texts;
  for (const Word& value : given->values) texts.push_back(value.text);
  return texts;
}

std::optional<std::int64_t> Reading::Whole(std::string_view argument) {
  std::string text = Text(argument);
  if (text.empty()) return std::nullopt;
  std::erase(text, '_');  // 1_000 in Python and TOML
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size()) return value;
  double real = 0;
  const auto [stop, wrong] = std::from_chars(text.data(), text.data() + text.size(), real);
  if (wrong == std::errc() && stop == text.data() + text.size() && real >= -1e15 && real <= 1e15 &&
      static_cast<double>(static_cast<std::int64_t>(real)) == real) {
    return static_cast<std::int64_t>(real);  // 5e8
  }
  problems_.push_back(fmt::format("{}: {} is '{}'; write a whole number", Where(argument), argument,
                                  Printable(text, 60)));
  return std::nullopt;
}

double Reading::Real(std::string_view argument, double fallback) {
  const std::string text = Text(argument);
  if (text.empty()) return fallback;
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size()) return value;
  problems_.push_back(fmt::format("{}: {} is '{}'; write a number", Where(argument), argument,
                                  Printable(text, 60)));
  return fallback;
}

std::string Reading::Where(std::string_view argument) const {
  const auto found = index_.find(argument);
  return found == index_.end() ? file_ : given_[found->second].where;
}

void Reading::Refuse(std::string_view argument, std::string why) {
  const auto found = index_.find(argument);
  const std::string name =
      found == index_.end() ? std::string(argument) : given_[found->second].name;
  if (std::ranges::find(options_.leave_out, name) != options_.leave_out.end()) {
    draft_.Assume(fmt::format("{} is left out: {}", name, why));  // what it falls back to
    return;
  }
  problems_.push_back(fmt::format("{}: {}: {}; --leave-out {} goes on without it", Where(argument),
                                  name, why, name));
}

bool Reading::IsSet(std::string_view key) const {
  return std::ranges::any_of(options_.read.set, [&](const std::string& set) {
    return set.substr(0, set.find('=')) == key;
  });
}

std::optional<std::int64_t> Reading::SetWhole(std::string_view key) const {
  std::optional<std::int64_t> whole;
  for (const std::string& set : options_.read.set) {
    const std::size_t equals = set.find('=');
    if (equals == std::string::npos || set.substr(0, equals) != key) continue;
    const Result<std::int64_t> value = ParseInteger(set.substr(equals + 1));
    if (value.ok()) whole = *value;
  }
  return whole;
}

// Read by way of a job on one GPU.
std::int64_t Reading::ClusterGpusPerNode() const {
  Draft probe;
  probe.Set("model", std::string("llama3-8b"));
  probe.SetText("cluster", options_.cluster);
  probe.Set("training.global_batch", std::int64_t{1});
  probe.Set("training.seq_len", std::int64_t{1});
  job::ReadOptions read;
  for (const std::string& set : options_.read.set) {
    if (set.starts_with("cluster")) read.set.push_back(set);
  }
  const Result<job::Job> job = probe.Read(read);
  return job.ok() ? job->cluster.gpus_per_node : 0;
}

std::string Reading::FromJob(const std::string& path) const {
  namespace fs = std::filesystem;
  std::error_code error;
  const bool file = fs::exists(path, error);
  if (!file || options_.folder.empty() || fs::path(path).is_absolute()) return path;
  const fs::path from = fs::absolute(options_.folder, error);
  return fs::proximate(fs::absolute(path, error), from, error).string();
}

std::optional<workload::Model> Reading::Model() const {
  Draft probe = draft_.Only("model");
  for (const std::string& set : options_.read.set) {
    const std::size_t equals = set.find('=');
    if (equals == std::string::npos || !set.starts_with("model")) continue;
    probe.Set(set.substr(0, equals), set.substr(equals + 1));
  }
  probe.Set("cluster", std::string("h100-ib-400g"));
  probe.Set("training.global_batch", std::int64_t{1});
  probe.Set("training.seq_len", std::int64_t{1});
  const Result<job::Job> job = probe.Read({}, options_.folder);
  if (!job.ok()) return std::nullopt;
  return job->workloads.front().model;
}

// The hosts that were said, or that the GPUs of --gpus fill; 0: the cluster's hosts are of another
// size, or are not filled.
std::int64_t Reading::WholeNodes(const Launch& launch, std::int64_t nodes,
                                 std::int64_t gpus) const {
  const std::int64_t said = options_.gpus > 0 ? 0 : nodes > 0 ? nodes : launch.nodes;
  if (gpus == 0 || (said == 0 && options_.gpus == 0)) return 0;
  const std::int64_t each = ClusterGpusPerNode();
  if (each == 0 || gpus % each != 0 || (said > 0 && gpus / each != said)) return 0;
  return gpus / each;
}

void Reading::SetSize(const Launch& launch) {
  if (const auto dp = SetWhole("parallel.dp")) {
    draft_.Set("parallel.dp", *dp);
    return;
  }
  const std::int64_t nodes = options_.nodes > 0 ? options_.nodes : SetWhole("nodes").value_or(0);
  const std::int64_t replica = draft_.Whole("parallel.tp", 1) * draft_.Whole("parallel.pp", 1) *
                               draft_.Whole("parallel.cp", 1);
  const std::int64_t host = launch.gpus_per_node > 0 ? launch.gpus_per_node
                            : launch.whole_hosts     ? ClusterGpusPerNode()
                                                     : 0;
  std::int64_t gpus = launch.gpus;
  if (gpus == 0 && launch.nodes > 0) gpus = Product({launch.nodes, host});
  if (options_.gpus > 0) {
    gpus = options_.gpus;
  } else if (nodes > 0) {
    const std::int64_t each =
        launch.gpus_per_node > 0 ? launch.gpus_per_node : ClusterGpusPerNode();
    if (each == 0) {
      draft_.Set("nodes", nodes);
      return;
    }
    gpus = nodes * each;
  }
  if (gpus == 0) {
    missing_.push_back(fmt::format(
        "how many GPUs it runs on{}: give --gpus N or --nodes N{}",
        launch.unknown.empty() ? ""
        : launch.unknown.find(' ') != std::string::npos
            ? fmt::format(" (it hangs on {})", Printable(launch.unknown.substr(1), 60))
            : fmt::format(" ({} is not set)", Printable(launch.unknown, 60)),
        launch.gpus_per_node > 0 ? fmt::format(" (of {} GPUs, as it says)", launch.gpus_per_node)
                                 : ""));
    return;
  }
  if (replica <= 0 || gpus % replica != 0) {
    problems_.push_back(fmt::format(
        "{}: {} GPUs are no multiple of a replica's {} (tp {} · pp {} · cp {}); give --gpus N",
        file_, HumanCount(gpus), HumanCount(replica), draft_.Whole("parallel.tp", 1),
        draft_.Whole("parallel.pp", 1), draft_.Whole("parallel.cp", 1)));
    return;
  }
  draft_.Set("parallel.dp", gpus / replica);
  SayNodes(WholeNodes(launch, nodes, gpus));
}

std::int64_t Product(std::initializer_list<std::int64_t> factors) {
  std::int64_t product = 1;
  for (const std::int64_t factor : factors) {
    if (__builtin_mul_overflow(product, factor, &product)) {
      return std::numeric_limits<std::int64_t>::max();
    }
  }
  return product;
}

std::int64_t RoundUp(std::int64_t value, std::int64_t multiple) {
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  if (value < 1 || multiple < 1 || value > kMost || multiple > kMost) return value;
  return (value + multiple - 1) / multiple * multiple;
}

Result<std::optional<File>> OpenNamed(const std::string& name, const std::string& recipe) {
  namespace fs = std::filesystem;
  constexpr int kMostAbove = 6;
  constexpr std::int64_t kMostBytes = 1 << 20;
  std::error_code error;
  fs::path folder = fs::path(recipe).parent_path();
  std::vector<fs::path> places = {name};
  for (int i = 0; i < kMostAbove && fs::path(name).is_relative(); ++i) {
    places.push_back(folder / name);
    if (folder.empty() || folder == folder.root_path()) break;
    folder = folder.parent_path();
  }
  for (const fs::path& place : places) {
    if (!fs::is_regular_file(place, error)) continue;
    ORRERY_ASSIGN_OR_RETURN(std::string text, ReadFile(place.string(), kMostBytes));
    return std::optional(File{place.string(), std::move(text)});
  }
  return std::optional<File>();
}

bool Reading::FitRacks(const job::Job& job) {
  constexpr std::string_view kKey = "cluster.gpus_per_nvlink_domain";
  const cluster::Spec& spec = job.cluster;
  const std::int64_t rack = spec.gpus_per_nvlink_domain, host = spec.gpus_per_node;
  if (rack <= host || spec.nodes * host <= rack || IsSet(kKey)) return false;
  std::error_code error;
  if (options_.cluster.empty() || std::filesystem::exists(options_.cluster, error)) return false;
  const workload::Parallelism& p = job.workloads.front().plan.parallel;
  const std::int64_t group =
      std::max<std::int64_t>(p.tp, p.ep * job.workloads.front().plan.expert_tp());
  if (group > rack || rack % group == 0) return false;
  const std::int64_t share = job::FilledByGroups(rack, host, group);
  if (share == 0) return false;
  draft_.Set(kKey, share);
  draft_.Assume(fmt::format("{} hosts of each rack, so that groups of {} ranks share NVLink",
                            share / host, group));
  return true;
}

Result<Imported> Reading::Finish(const std::string& dialect) {
  if (!draft_.Has("model") && !draft_.Has("model.name")) {
    draft_.SetText("model.name", std::filesystem::path(file_).stem().string());
  }
  if (!options_.cluster.empty()) {
    draft_.SetText("cluster", FromJob(options_.cluster));
    draft_.SaidBy("cluster", "--cluster");
  } else if (!IsSet("cluster") && !IsSet("cluster.preset")) {
    missing_.push_back(
        "which cluster it runs on: give --cluster NAME ('orrery list clusters') or "
        "a file");
  }
  if (!missing_.empty()) {
    problems_.push_back(fmt::format("{} does not say {}", file_, fmt::join(missing_, "; nor ")));
  }
  if (!problems_.empty()) {
    const std::size_t shown = std::min(problems_.size(), kMostShown);
    std::string text = fmt::format(
        "{}", fmt::join(problems_.begin(), problems_.begin() + static_cast<std::ptrdiff_t>(shown),
                        "\n  "));
    if (shown < problems_.size()) {
      text += fmt::format("\n  and {} more", problems_.size() - shown);
    }
    if (unknown_ > 1) {
      text += fmt::format("\n  --leave-out {} goes on without all {} that are not known", kUnknown,
                          unknown_);
    }
    return Status(Code::kInvalidInput, std::move(text));
  }
  if (nodes_ > 0) {
    draft_.Drop("parallel.dp");
    draft_.Set("nodes", nodes_);
  }
  const std::string_view sharding = draft_.Text("training.sharding");
  const bool one = draft_.Whole("parallel.dp", 0) == 1 && draft_.Whole("parallel.cp", 1) == 1;
  if (one && (sharding == "zero2" || sharding == "zero3") && !draft_.Has("training.offload") &&
      !IsSet("training.sharding")) {
    draft_.Set("training.sharding", std::string("none"));
    draft_.Assume("one data-parallel rank: parameters, gradients and states have nothing to shard");
  }
  // No rank to reduce with: Accelerate, Composer, nanoGPT and others leave the model as it is.
  if (draft_.Text("framework") == "ddp" && draft_.Whole("parallel.dp", 0) == 1 &&
      !draft_.Has("framework_options.bucket_views")) {
    draft_.Set("framework_options.bucket_views", true);
    draft_.Assume(
        "one GPU: the model is not wrapped in DistributedDataParallel, whose buckets would be as "
        "large as the gradients");
  }
  for (const std::string& set : options_.read.set) {
    const std::size_t equals = set.find('=');
    if (equals != std::string::npos) draft_.Set(set.substr(0, equals), set.substr(equals + 1));
  }
  Imported imported{.dialect = dialect, .uses = std::move(uses_)};
  imported.name = file_ + " (imported)";
  ORRERY_ASSIGN_OR_RETURN(imported.job, draft_.Read(options_.read, options_.folder));
  if (FitRacks(imported.job)) {
    ORRERY_ASSIGN_OR_RETURN(imported.job, draft_.Read(options_.read, options_.folder));
  }
  imported.job_text = draft_.Yaml();
  return imported;
}

}  // namespace orrery::recipes
