//! `--chat-template`: replaces the model's chat template by one from a file, or by a built-in one of a model family.

use std::ffi::OsString;

use gguf::{Gguf, OwnedValue};

use crate::exit::Failure;
use crate::forms;
use crate::similar::nearest;

/// Chat template that replaces the model's own.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct TemplateArgs {
    /// Chat template in place of the model's: chatml, llama3, gemma, ..., a file, or Jinja text
    #[arg(long, value_name = "NAME|FILE", alias = "chat-template-file")]
    chat_template: Option<OsString>,
}

const KEY: &str = "tokenizer.chat_template";

impl TemplateArgs {
    /// Replaces the template in the metadata of a model's file.
    ///
    /// # Errors
    /// [`Failure::Usage`] if the argument is neither the name of a template nor a file.
    pub(crate) fn apply(&self, gguf: &mut Gguf) -> anyhow::Result<()> {
        let Some(given) = &self.chat_template else { return Ok(()) };
        let name = given.to_str().unwrap_or_default();
        let source = match TEMPLATES.iter().find(|(known, _)| *known == name) {
            Some((_, source)) => (*source).to_owned(),
            None if !is_jinja(name) && !std::path::Path::new(given).exists() => {
                return Err(unknown(name).into());
            }
            None => forms::text(given, is_jinja)?,
        };
        gguf.override_metadata(KEY, OwnedValue::String(source.into_bytes()));
        Ok(())
    }
}

fn is_jinja(text: &str) -> bool {
    text.contains("{{") || text.contains("{%")
}

fn unknown(name: &str) -> Failure {
    let names: Vec<&str> = TEMPLATES.iter().map(|(name, _)| *name).collect();
    let near = nearest(name, names.iter().copied());
    let near = near.map_or_else(String::new, |near| format!("; did you mean {near}?"));
    Failure::Usage(format!(
        "--chat-template {}: no such file, and no template of this name: {}{near}",
        gguf::escape(name, 60),
        names.join(", ")
    ))
}

/// Built-in templates by the names that llama.cpp gives them. They do not write the BOS token at the beginning of the text.
///
/// Source: the model cards and `tokenizer_config.json` of the families.
static TEMPLATES: &[(&str, &str)] = &[
    (
        "chatml",
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}\
         {% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
    ),
    (
        "llama2",
        "{% set ns = namespace(system='') %}{% for m in messages %}\
         {% if m.role == 'system' %}{% set ns.system = '<<SYS>>\\n' ~ m.content ~ '\\n<</SYS>>\\n\\n' %}\
         {% elif m.role == 'user' %}{% if not loop.first and ns.system == '' %}{{ bos_token }}{% endif %}\
         [INST] {{ ns.system }}{{ m.content }} [/INST]{% set ns.system = '' %}\
         {% else %} {{ m.content }} {{ eos_token }}{% endif %}{% endfor %}",
    ),
    (
        "llama3",
        "{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n{{ m.content }}<|eot_id|>{% endfor %}\
         {% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}",
    ),
    (
        "gemma",
        "{% set ns = namespace(system='') %}{% for m in messages %}\
         {% if m.role == 'system' %}{% set ns.system = m.content ~ '\\n\\n' %}{% else %}\
         <start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n\
         {% if m.role != 'assistant' %}{{ ns.system }}{% set ns.system = '' %}{% endif %}{{ m.content }}<end_of_turn>\n\
         {% endif %}{% endfor %}{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}",
    ),
    (
        "mistral-v1",
        "{% set ns = namespace(system='') %}{% for m in messages %}\
         {% if m.role == 'system' %}{% set ns.system = m.content ~ '\\n\\n' %}\
         {% elif m.role == 'user' %} [INST] {{ ns.system }}{{ m.content }} [/INST]{% set ns.system = '' %}\
         {% else %} {{ m.content }}{{ eos_token }}{% endif %}{% endfor %}",
    ),
    (
        "mistral-v3",
        "{% set ns = namespace(system='') %}{% for m in messages %}\
         {% if m.role == 'system' %}{% set ns.system = m.content ~ '\\n\\n' %}\
         {% elif m.role == 'user' %}[INST] {{ ns.system }}{{ m.content }}[/INST]{% set ns.system = '' %}\
         {% else %} {{ m.content }}{{ eos_token }}{% endif %}{% endfor %}",
    ),
    (
        "mistral-v7",
        "{% for m in messages %}\
         {% if m.role == 'system' %}[SYSTEM_PROMPT] {{ m.content }}[/SYSTEM_PROMPT]\
         {% elif m.role == 'user' %}[INST] {{ m.content }}[/INST]\
         {% else %} {{ m.content }}{{ eos_token }}{% endif %}{% endfor %}",
    ),
    (
        "phi3",
        "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}<|end|>\n{% endfor %}\
         {% if add_generation_prompt %}<|assistant|>\n{% endif %}",
    ),
    (
        "phi4",
        "{% for m in messages %}<|im_start|>{{ m.role }}<|im_sep|>{{ m.content }}<|im_end|>{% endfor %}\
         {% if add_generation_prompt %}<|im_start|>assistant<|im_sep|>{% endif %}",
    ),
    (
        "zephyr",
        "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}{{ eos_token }}\n{% endfor %}\
         {% if add_generation_prompt %}<|assistant|>\n{% endif %}",
    ),
    (
        "vicuna",
        "{% for m in messages %}{% if m.role == 'system' %}{{ m.content }}\n\n\
         {% elif m.role == 'user' %}USER: {{ m.content }}\n\
         {% else %}ASSISTANT: {{ m.content }}{{ eos_token }}\n{% endif %}{% endfor %}\
         {% if add_generation_prompt %}ASSISTANT:{% endif %}",
    ),
    (
        "deepseek3",
        "{% for m in messages %}{% if m.role == 'system' %}{{ m.content }}\n\n\
         {% elif m.role == 'user' %}<\u{ff5c}User\u{ff5c}>{{ m.content }}\
         {% else %}<\u{ff5c}Assistant\u{ff5c}>{{ m.content }}{{ eos_token }}{% endif %}{% endfor %}\
         {% if add_generation_prompt %}<\u{ff5c}Assistant\u{ff5c}>{% endif %}",
    ),
    (
        "command-r",
        "{% set names = {'system': 'SYSTEM', 'user': 'USER', 'assistant': 'CHATBOT'} %}{% for m in messages %}\
         <|START_OF_TURN_TOKEN|><|{{ names[m.role] }}_TOKEN|>{{ m.content }}<|END_OF_TURN_TOKEN|>{% endfor %}\
         {% if add_generation_prompt %}<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>{% endif %}",
    ),
    (
        "granite",
        "{% for m in messages %}<|start_of_role|>{{ m.role }}<|end_of_role|>{{ m.content }}<|end_of_text|>\n{% endfor %}\
         {% if add_generation_prompt %}<|start_of_role|>assistant<|end_of_role|>{% endif %}",
    ),
];

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;
    use tokenizer::ChatTemplate;

    use super::*;

    fn rendered(name: &str) -> String {
        let (_, source) = TEMPLATES.iter().find(|(known, _)| *known == name).expect("it is known");
        let mut template = ChatTemplate::from_source(source).expect("it compiles");
        template.set_bos("<s>");
        template.set_eos("</s>");
        let said = |role: &str, content: &str| json!({"role": role, "content": content});
        let messages =
            [said("system", "S"), said("user", "U"), said("assistant", "A"), said("user", "V")];
        let arguments = json!({"messages": messages, "add_generation_prompt": true});
        let arguments = arguments.as_object().expect("it is one");
        let spans = template.render_json(arguments, &Arc::default()).expect("it renders");
        spans.into_iter().map(|span| span.text).collect()
    }

    /// Text that each family expects for two turns with a system message.
    #[test]
    fn templates_write_what_their_families_read() {
        let all = [
            (
                "chatml",
                "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\nA<|im_end|>\n<|im_start|>user\nV<|im_end|>\n<|im_start|>assistant\n",
            ),
            ("llama2", "[INST] <<SYS>>\nS\n<</SYS>>\n\nU [/INST] A </s><s>[INST] V [/INST]"),
            (
                "llama3",
                "<|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nU<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nA<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nV<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
            ),
            (
                "gemma",
                "<start_of_turn>user\nS\n\nU<end_of_turn>\n<start_of_turn>model\nA<end_of_turn>\n<start_of_turn>user\nV<end_of_turn>\n<start_of_turn>model\n",
            ),
            ("mistral-v1", " [INST] S\n\nU [/INST] A</s> [INST] V [/INST]"),
            ("mistral-v3", "[INST] S\n\nU[/INST] A</s>[INST] V[/INST]"),
            ("mistral-v7", "[SYSTEM_PROMPT] S[/SYSTEM_PROMPT][INST] U[/INST] A</s>[INST] V[/INST]"),
            (
                "phi3",
                "<|system|>\nS<|end|>\n<|user|>\nU<|end|>\n<|assistant|>\nA<|end|>\n<|user|>\nV<|end|>\n<|assistant|>\n",
            ),
            (
                "phi4",
                "<|im_start|>system<|im_sep|>S<|im_end|><|im_start|>user<|im_sep|>U<|im_end|><|im_start|>assistant<|im_sep|>A<|im_end|><|im_start|>user<|im_sep|>V<|im_end|><|im_start|>assistant<|im_sep|>",
            ),
            (
                "zephyr",
                "<|system|>\nS</s>\n<|user|>\nU</s>\n<|assistant|>\nA</s>\n<|user|>\nV</s>\n<|assistant|>\n",
            ),
            ("vicuna", "S\n\nUSER: U\nASSISTANT: A</s>\nUSER: V\nASSISTANT:"),
            (
                "deepseek3",
                "S\n\n<\u{ff5c}User\u{ff5c}>U<\u{ff5c}Assistant\u{ff5c}>A</s><\u{ff5c}User\u{ff5c}>V<\u{ff5c}Assistant\u{ff5c}>",
            ),
            (
                "command-r",
                "<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>S<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|USER_TOKEN|>U<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>A<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|USER_TOKEN|>V<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>",
            ),
            (
                "granite",
                "<|start_of_role|>system<|end_of_role|>S<|end_of_text|>\n<|start_of_role|>user<|end_of_role|>U<|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>A<|end_of_text|>\n<|start_of_role|>user<|end_of_role|>V<|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>",
            ),
        ];
        assert_eq!(all.len(), TEMPLATES.len(), "each has what it writes");
        for (name, want) in all {
            assert_eq!(rendered(name), want, "{name}");
        }
    }

    #[test]
    fn names_files_and_text_are_told_apart() {
        let applied = |given: &str| {
            let mut gguf = Gguf::from_bytes(conformance::demo_gguf()).expect("it opens");
            TemplateArgs { chat_template: Some(given.into()) }.apply(&mut gguf)?;
            Ok::<_, anyhow::Error>(gguf.metadata().str(KEY)?.unwrap_or_default().to_owned())
        };
        assert!(applied("llama3").expect("a name").contains("start_header_id"));
        assert_eq!(
            applied("{{ messages[0].content }}").expect("a text"),
            "{{ messages[0].content }}"
        );
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), "{{ 'x' }}").expect("written");
        assert_eq!(applied(&file.path().to_string_lossy()).expect("a file"), "{{ 'x' }}");
        let told = applied("lama3").expect_err("no such name").to_string();
        assert!(told.contains("did you mean llama3?") && told.contains("chatml"), "{told}");
    }
}
