// Hugging Face config.json → Model. Fields that change no shape (rope_scaling, initializer_range,
// …) are ignored; those that would change the computation are checked.
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "orrery/base/file.h"
#include "orrery/base/suggest.h"
#include "orrery/workload/hugging_face_reader.h"

namespace orrery::workload {

using formats::Document;
using formats::Node;
using hugging_face::Family;
using hugging_face::Flag;
using hugging_face::Layout;
using hugging_face::Reader;
using hugging_face::Whole;

namespace {

constexpr std::int64_t kMostBytes = 1 << 20;

// What Llama's kin must say alike.
void RequireLlama(Reader* r) {
  r->Require("hidden_act", r->Text("hidden_act") == "silu", "valid: silu");
  r->Require("attention_dropout", r->FractionOr("attention_dropout", 0) == 0,
             "set it to 0: these models train without");
}

void ReadLlama(Reader* r, Model* /*m*/) { RequireLlama(r); }

void ReadMistral(Reader* r, Model* m) {
  RequireLlama(r);
  hugging_face::ReadWindows(r, m);
}

void ReadPhi3(Reader* r, Model* m) {
  RequireLlama(r);
  hugging_face::ReadWindows(r, m);
  m->dropout = std::max(r->FractionOr("resid_pdrop", 0), r->FractionOr("embd_pdrop", 0));
}

// Qwen's windows are those of the layers from max_window_layers on, where they are used at all.
void ReadQwenWindows(Reader* r, Model* m) {
  if (r->Present("layer_types") != nullptr) return hugging_face::ReadWindows(r, m);
  if (!r->BoolOr("use_sliding_window", false)) return;
  const Node* from = r->Present("max_window_layers");
  const bool all = from != nullptr && from->text == "0";
  if (!all && r->IntegerOr("max_window_layers", 28) >= m->layers) return;
  r->Require("max_window_layers", all,
             "windows in the last layers alone are not modelled; set use_sliding_window to false, "
             "or max_window_layers to 0 for windows in all layers");
  hugging_face::ReadWindows(r, m);
}

void ReadQwen2(Reader* r, Model* m) {
  RequireLlama(r);
  m->projection_bias = false;
  ReadQwenWindows(r, m);
}

void ReadQwen3(Reader* r, Model* m) {
  RequireLlama(r);
  m->qk_norm = true;
  ReadQwenWindows(r, m);
}

// Experts as Mixtral, Qwen3 and GPT-OSS name them.
void ReadExperts(Reader* r, std::string_view count, std::string_view width, Model* m) {
  m->experts.count = r->Integer(count);
  m->experts.top_k = r->Integer("num_experts_per_tok");
  m->experts.ffn_hidden = r->Integer(width);
}

void ReadMixtral(Reader* r, Model* m) {
  ReadMistral(r, m);
  ReadExperts(r, "num_local_experts", "intermediate_size", m);
}

void ReadQwenExperts(Reader* r, Model* m) {
  ReadExperts(r, "num_experts", "moe_intermediate_size", m);
  m->experts.every = r->IntegerOr("decoder_sparse_step", 1);
  const Node* dense = r->Present("mlp_only_layers");
  if (dense != nullptr && !dense->items.empty()) {
    r->Fail(
        InvalidInput("{}: mlp_only_layers: layers without experts are modelled at the front "
                     "or every so many (decoder_sparse_step); leave it empty",
                     r->Where(*dense)));
  }
}

// The gate of the shared expert, hidden_size weights a layer, is not counted.
void ReadQwen2Moe(Reader* r, Model* m) {
  ReadQwen2(r, m);
  ReadQwenExperts(r, m);
  m->experts.shared_ffn_hidden = r->Integer("shared_expert_intermediate_size");
}

void ReadQwen3Moe(Reader* r, Model* m) {
  ReadQwen3(r, m);
  ReadQwenExperts(r, m);
}

// Fine-grained experts beside shared ones, dense layers at the front (DeepSeek, GLM-4.5).
void ReadSharedExperts(Reader* r, Model* m) {
  ReadExperts(r, "n_routed_experts", "moe_intermediate_size", m);
  m->experts.shared_ffn_hidden = r->Present("n_shared_experts") == nullptr
                                     ? 0
                                     : r->Integer("n_shared_experts") * m->experts.ffn_hidden;
  // 0 is a legal value of this field alone.
  const Node* dense = r->Present("first_k_dense_replace");
  m->experts.first_dense =
      dense == nullptr || dense->text == "0" ? 0 : r->Integer("first_k_dense_replace");
}

void ReadDeepSeek(Reader* r, Model* m) {
  RequireLlama(r);
  ReadSharedExperts(r, m);
  r->Require("moe_layer_freq", r->Text("moe_layer_freq") == "1", "valid: 1");
  Latent& l = m->latent;
  l.q_rank = r->IntegerOr("q_lora_rank", 0);
  l.kv_rank = r->Integer("kv_lora_rank");
  l.nope_dim = r->Integer("qk_nope_head_dim");
  l.rope_dim = r->Integer("qk_rope_head_dim");
  l.v_dim = r->Integer("v_head_dim");
  m->head_dim = l.nope_dim + l.rope_dim;
}

// GLM-4.5; what predicts further tokens is set by mtp_layers, as for DeepSeek-V3.
void ReadGlm4Moe(Reader* r, Model* m) {
  RequireLlama(r);
  m->projection_bias = false;
  m->qk_norm = r->BoolOr("use_qk_norm", false);
  ReadSharedExperts(r, m);
}

void ReadGptOss(Reader* r, Model* m) {
  RequireLlama(r);
  ReadExperts(r, "num_local_experts", "intermediate_size", m);
  m->sinks = m->experts.router_bias = true;
  m->scaled_rotary = m->clamped_activation = true;
  m->window = r->IntegerOr("sliding_window", 128);
  m->full_every = 2;
  if (r->Present("layer_types") != nullptr) hugging_face::ReadWindows(r, m);
}

// Nemotron-H and Nemotron 3. Attention has no positions.
void ReadNemotronH(Reader* r, Model* m) {
  m->pattern = r->Text("hybrid_override_pattern");
  m->mamba = {.heads = r->Integer("mamba_num_heads"),
              .head_dim = r->Integer("mamba_head_dim"),
              .state = r->Integer("ssm_state_size"),
              .groups = r->Integer("n_groups"),
              .conv = r->IntegerOr("conv_kernel", 4),
              .chunk = r->IntegerOr("chunk_size", 128)};
  r->Require("mlp_hidden_act", r->Text("mlp_hidden_act") == "relu2", "valid: relu2");
  if (m->pattern.empty()) {
    r->Fail(InvalidInput("{}: hybrid_override_pattern is missing; it says what each layer is",
                         r->path()));
  }
  if (m->pattern.find('E') == std::string::npos) return;
  ReadExperts(r, "n_routed_experts", "moe_intermediate_size", m);
  m->experts.shared_ffn_hidden = r->IntegerOr("moe_shared_expert_intermediate_size", 0);
  m->experts.latent = r->IntegerOr("moe_latent_size", 0);
}

constexpr Flag kNever = {}, kAlways = {"", true};
constexpr Layout kLlama = {};
constexpr Layout kMistral = {
    .kv_heads = {"num_key_value_heads", 8}, .attention_bias = kNever, .mlp_bias = kNever};
constexpr Layout kQwen2 = {.attention_bias = kAlways};

constexpr Family kFamilies[] = {
    {"llama", kLlama, ReadLlama},
    {"mistral", kMistral, ReadMistral},
    {"phi3", kLlama, ReadPhi3},
    // Gated GeLU, priced as SwiGLU. Gemma 2 and 3 have four norms a layer and are other types.
    {"gemma",
     {.head_dim = {"head_dim", 256},
      .positions = {"max_position_embeddings", 8192},
      .tied = {"tie_word_embeddings", true},
      .mlp_bias = kNever},
     nullptr},
    {"qwen2", kQwen2, ReadQwen2},
    {"qwen3", kLlama, ReadQwen3},
    {"mixtral", kMistral, ReadMixtral},
    {"qwen2_moe", kQwen2, ReadQwen2Moe},
    {"qwen3_moe", kLlama, ReadQwen3Moe},
    {"deepseek_v2", kLlama, ReadDeepSeek},
    {"deepseek_v3", kLlama, ReadDeepSeek},
    {"kimi_k2", kLlama, ReadDeepSeek},
    {"glm4_moe", kLlama, ReadGlm4Moe},
    {"gpt_oss", {.attention_bias = kAlways, .mlp_bias = kAlways}, ReadGptOss},
    {"nemotron_h",
     {.head_dim = {"head_dim|attention_head_dim", 128},
      .positions = {"max_position_embeddings", 8192},
      .activation = Activation::kSquaredRelu,
      .position = Position::kNone},
     ReadNemotronH}};

std::vector<Family> Families() {
  const auto dense = hugging_face::DenseFamilies();
  std::vector<Family> all(dense.begin(), dense.end());
  all.insert(all.end(), std::begin(kFamilies), std::end(kFamilies));
  return all;
}

void ReadLayout(Reader* r, const Layout& f, Model* m) {
  const auto whole = [&](const Whole& w, std::optional<std::int64_t> fallback) {
    const std::string_view key = r->OneOf(w.key);
    if (key.empty()) return fallback.value_or(0);
    return fallback ? r->IntegerOr(key, *fallback) : r->Integer(key);
  };
  const auto flag = [&](const Flag& b) {
    return b.key.empty() ? b.fallback : r->BoolOr(b.key, b.fallback);
  };
  m->layers = whole(f.layers, {});
  m->hidden = whole(f.hidden, {});
  m->heads = whole(f.heads, {});
  m->kv_heads = whole(f.kv_heads, f.kv_heads.fallback.value_or(m->heads));
  m->head_dim = whole(f.head_dim, f.head_dim.fallback);
  using Fallback = std::optional<std::int64_t>;
  m->ffn_hidden = whole(f.ffn, f.ffn_times > 0 ? Fallback(f.ffn_times * m->hidden) : Fallback());
  m->vocab = whole(f.vocab, {});
  m->max_position = whole(f.positions, f.positions.fallback);
  m->tied_embeddings = flag(f.tied);
  m->attention_bias = flag(f.attention_bias);
  m->mlp_bias = flag(f.mlp_bias);
  m->norm = f.norm;
  m->activation = f.activation;
  m->position = f.position;
}

}  // namespace

namespace hugging_face {

void ReadWindows(Reader* r, Model* m) {
  const Node* types = r->Present("layer_types");
  m->window = 0;
  m->full_every = 0;
  if (types == nullptr) {
    if (r->Present("sliding_window") != nullptr) m->window = r->Integer("sliding_window");
    return;
  }
  if (static_cast<std::int64_t>(types->items.size()) != m->layers) {
    return r->Fail(InvalidInput("{}: layer_types names {} layers of {}; name each",
                                r->Where(*types), types->items.size(), m->layers));
  }
  std::int64_t first_full = 0;  // from 1; 0: none
  bool windows = false;
  for (std::size_t l = 0; l < types->items.size(); ++l) {
    const Node& type = types->items[l];
    const bool full = type.text == "full_attention";
    if (!full && type.text != "sliding_attention") {
      return r->Fail(InvalidInput(
          "{}: layer_types: '{}' is not modelled; valid: full_attention, sliding_attention",
          r->Where(type), Printable(type.text)));
    }
    if (full && first_full == 0) first_full = static_cast<std::int64_t>(l) + 1;
    windows = windows || !full;
  }
  if (!windows) return;
  for (std::size_t l = 0; l < types->items.size(); ++l) {
    const auto number = static_cast<std::int64_t>(l) + 1;
    const bool full = first_full > 0 && number % first_full == 0;
    if (full == (types->items[l].text == "full_attention")) continue;
    return r->Fail(
        InvalidInput("{}: layer_types: layer {} of {}; windows are modelled in all "
                     "layers, or in all but the last of every so many",
                     r->Where(types->items[l]), number, types->items.size()));
  }
  m->window = r->Integer("sliding_window");
  m->full_every = first_full;
}

}  // namespace hugging_face

Result<Model> ReadHuggingFaceConfig(const std::string& path) {
  ORRERY_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMostBytes));
  Result<Document> parsed = formats::ParseJson(text, path);
  if (!parsed.ok()) {
    return InvalidInput("{} (the file has {} bytes); take the model's whole config.json",
                        parsed.status().message(), text.size());
  }
  const Document& document = *parsed;
  if (document.root.kind != Node::Kind::kMap) {
    return InvalidInput("{}: a config.json is one JSON object, this is not", path);
  }
  Reader r(document, path);
  const std::string type = r.Text("model_type");
  const std::vector<Family> families = Families();
  std::vector<std::string_view> types;
  for (const Family& f : families) types.push_back(f.type);
  if (type.empty()) {
    return InvalidInput("{}: model_type is missing; valid: {}", path, fmt::join(types, ", "));
  }
  const auto family = std::ranges::find(families, type, &Family::type);
  if (family == families.end()) {
    return InvalidInput("{}: {}", r.Where(*r.Present("model_type")),
                        UnknownName("model_type", Printable(type), types));
  }
  Model m;
  m.name = r.Text("_name_or_path").empty() ? path : r.Text("_name_or_path");
  m.source = path;
  ReadLayout(&r, family->layout, &m);
  if (family->more != nullptr) family->more(&r, &m);
  if (!r.status().ok()) return r.status();
  if (m.head_dim == 0) {
    if (m.hidden % m.heads != 0) {
      return InvalidInput("{}: {} attention heads do not divide the hidden size {}; give head_dim",
                          path, m.heads, m.hidden);
    }
    m.head_dim = m.hidden / m.heads;
  }
  if (Status status = Validate(m); !status.ok()) return std::move(status).In(path);
  return m;
}

}  // namespace orrery::workload
