// Hugging Face config.json → Model. Fields that change no shape (rope_scaling, initializer_range,
// …) are ignored; those that would change the computation are checked.
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "orrery/base/file.h"
#include "orrery/base/suggest.h"
#include "orrery/workload/hugging_face_reader.h"

namespace orrery::workload {

using formats::Document;
using formats::Node;
using hugging_face::Reader;

namespace {

constexpr std::int64_t kMostBytes = 1 << 20;

// Llama's layout, which many families share.
void ReadLlama(Reader* r, Model* m) {
  m->layers = r->Integer("num_hidden_layers");
  m->hidden = r->Integer("hidden_size");
  m->heads = r->Integer("num_attention_heads");
  m->kv_heads = r->IntegerOr("num_key_value_heads", m->heads);
  m->head_dim = r->IntegerOr("head_dim", 0);
  m->ffn_hidden = r->Integer("intermediate_size");
  m->vocab = r->Integer("vocab_size");
  m->max_position = r->IntegerOr("max_position_embeddings", 2048);
  m->norm = Norm::kRmsNorm;
  m->activation = Activation::kSwiglu;
  m->position = Position::kRotary;
  m->tied_embeddings = r->BoolOr("tie_word_embeddings", false);
  m->attention_bias = r->BoolOr("attention_bias", false);
  m->mlp_bias = r->BoolOr("mlp_bias", false);
  r->Require("hidden_act", r->Text("hidden_act") == "silu", "valid: silu");
  r->Require("attention_dropout", r->FractionOr("attention_dropout", 0) == 0,
             "set it to 0: these models train without");
}

void ReadMistral(Reader* r, Model* m) {
  ReadLlama(r, m);
  m->kv_heads = r->IntegerOr("num_key_value_heads", 8);
  m->attention_bias = m->mlp_bias = false;
  hugging_face::ReadWindows(r, m);
}

void ReadPhi3(Reader* r, Model* m) {
  ReadLlama(r, m);
  hugging_face::ReadWindows(r, m);
  m->dropout = std::max(r->FractionOr("resid_pdrop", 0), r->FractionOr("embd_pdrop", 0));
}

// Gated GeLU, priced as SwiGLU. Gemma 2 and 3 have four norms a layer and are other types.
void ReadGemma(Reader* r, Model* m) {
  m->layers = r->Integer("num_hidden_layers");
  m->hidden = r->Integer("hidden_size");
  m->heads = r->Integer("num_attention_heads");
  m->kv_heads = r->IntegerOr("num_key_value_heads", m->heads);
  m->head_dim = r->IntegerOr("head_dim", 256);
  m->ffn_hidden = r->Integer("intermediate_size");
  m->vocab = r->Integer("vocab_size");
  m->max_position = r->IntegerOr("max_position_embeddings", 8192);
  m->norm = Norm::kRmsNorm;
  m->activation = Activation::kSwiglu;
  m->position = Position::kRotary;
  m->tied_embeddings = r->BoolOr("tie_word_embeddings", true);
  m->attention_bias = r->BoolOr("attention_bias", false);
  m->mlp_bias = false;
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
  ReadLlama(r, m);
  m->attention_bias = true;
  m->projection_bias = false;
  ReadQwenWindows(r, m);
}

void ReadQwen3(Reader* r, Model* m) {
  ReadLlama(r, m);
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
  ReadLlama(r, m);
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
  ReadLlama(r, m);
  m->projection_bias = false;
  m->qk_norm = r->BoolOr("use_qk_norm", false);
  ReadSharedExperts(r, m);
}

void ReadGptOss(Reader* r, Model* m) {
  ReadLlama(r, m);
  ReadExperts(r, "num_local_experts", "intermediate_size", m);
  m->attention_bias = m->mlp_bias = m->sinks = m->experts.router_bias = true;
  m->scaled_rotary = m->clamped_activation = true;
  m->window = r->IntegerOr("sliding_window", 128);
  m->full_every = 2;
  if (r->Present("layer_types") != nullptr) hugging_face::ReadWindows(r, m);
}

// Nemotron-H and Nemotron 3. Attention has no positions.
void ReadNemotronH(Reader* r, Model* m) {
  m->pattern = r->Text("hybrid_override_pattern");
  m->layers = r->Integer("num_hidden_layers");
  m->hidden = r->Integer("hidden_size");
  m->heads = r->Integer("num_attention_heads");
  m->kv_heads = r->IntegerOr("num_key_value_heads", m->heads);
  m->head_dim = r->IntegerOr("head_dim", r->IntegerOr("attention_head_dim", 128));
  m->ffn_hidden = r->Integer("intermediate_size");
  m->vocab = r->Integer("vocab_size");
  m->max_position = r->IntegerOr("max_position_embeddings", 8192);
  m->norm = Norm::kRmsNorm;
  m->activation = Activation::kSquaredRelu;
  m->position = Position::kNone;
  m->tied_embeddings = r->BoolOr("tie_word_embeddings", false);
  m->attention_bias = r->BoolOr("attention_bias", false);
  m->mlp_bias = r->BoolOr("mlp_bias", false);
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

struct Family {
  std::string_view type;
  void (*read)(Reader*, Model*);
};
constexpr Family kFamilies[] = {{"gpt2", hugging_face::ReadGpt2},
                                {"gpt_neox", hugging_face::ReadGptNeoX},
                                {"opt", hugging_face::ReadOpt},
                                {"bloom", hugging_face::ReadBloom},
                                {"falcon", hugging_face::ReadFalcon},
                                {"mpt", hugging_face::ReadMpt},
                                {"bert", hugging_face::ReadBert},
                                {"nemotron", hugging_face::ReadNemotron},
                                {"starcoder2", hugging_face::ReadStarCoder2},
                                {"llama", ReadLlama},
                                {"mistral", ReadMistral},
                                {"phi3", ReadPhi3},
                                {"gemma", ReadGemma},
                                {"qwen2", ReadQwen2},
                                {"qwen3", ReadQwen3},
                                {"mixtral", ReadMixtral},
                                {"qwen2_moe", ReadQwen2Moe},
                                {"qwen3_moe", ReadQwen3Moe},
                                {"deepseek_v2", ReadDeepSeek},
                                {"deepseek_v3", ReadDeepSeek},
                                {"kimi_k2", ReadDeepSeek},
                                {"glm4_moe", ReadGlm4Moe},
                                {"gpt_oss", ReadGptOss},
                                {"nemotron_h", ReadNemotronH}};
constexpr auto kTypes = [] {
  std::array<std::string_view, std::size(kFamilies)> out{};
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = kFamilies[i].type;
  return out;
}();

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
  if (type.empty()) {
    return InvalidInput("{}: model_type is missing; valid: {}", path, fmt::join(kTypes, ", "));
  }
  Model m;
  m.name = r.Text("_name_or_path").empty() ? path : r.Text("_name_or_path");
  m.source = path;
  const auto* family = std::ranges::find(kFamilies, type, &Family::type);
  if (family == std::end(kFamilies)) {
    return InvalidInput("{}: {}", r.Where(*r.Present("model_type")),
                        UnknownName("model_type", Printable(type), kTypes));
  }
  family->read(&r, &m);
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
