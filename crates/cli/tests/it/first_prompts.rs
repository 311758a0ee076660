//! What newcomers type first into the bundled model, and what it must answer: greedily however they type it, and as it
//! replies by default, by several seeds.

use crate::common::Place;

/// Seeds by which each prompt is answered at the default temperature.
const SEEDS: [&str; 4] = ["1", "2", "3", "4"];

/// A prompt, as it is typed in several ways; the reply has all parts of one of the lists.
struct First {
    typed: &'static [&'static str],
    reply: &'static [&'static [&'static str]],
}

const WHO: &[&[&str]] = &[&["I am Rooflight's small demo model", "4.6 million parameters"]];
const CAN: &[&[&str]] = &[&["I can chat", "stories", "add and subtract", "remember"]];

/// The twenty likeliest, by what chats with small models begin with: greetings, what it is and can, the things anybody
/// asks for, the questions everybody has an answer to.
const FIRST: [First; 20] = [
    First {
        typed: &["Hello", "hello", "Hello!"],
        reply: &[&["Hello!", "?"], &["Hello! It is nice to meet you."]],
    },
    First {
        typed: &["hi", "Hi!", "hey"],
        reply: &[&["Hello!", "?"], &["Hello! It is nice to meet you."]],
    },
    First {
        typed: &["Say hello", "say hello", "Say hello!", "Say hello.", "Please say hello."],
        reply: &[&["Hello!"]],
    },
    First { typed: &["Who are you?", "who are you", "Introduce yourself"], reply: WHO },
    First { typed: &["What is your name?", "what's your name"], reply: WHO },
    First { typed: &["What can you do?", "what can you do"], reply: CAN },
    First { typed: &["help", "Help!", "Help me"], reply: CAN },
    First {
        typed: &["How are you?", "how are you", "Hello, how are you?"],
        reply: &[&["I am", "thank you", "?"]],
    },
    First {
        typed: &["test", "Testing", "this is a test"],
        reply: &[&["I am here, and it works."]],
    },
    First {
        typed: &["Tell me a joke", "tell me a joke.", "joke"],
        reply: &[
            &["Why did the clock go to school?", "learn the time"],
            &["Why did the cow cross the road?", "moo-vies"],
            &["What did the big candle say", "I am going out tonight"],
            &["Why was the book sad?", "problems"],
            &["Why can the bicycle not stand", "too tired"],
            &["What is brown and sticky?", "A stick"],
            &["What did the sea say to the sand?", "waved"],
            &["Why does the bee hum?", "forgotten the words"],
        ],
    },
    First {
        typed: &["Tell me a story", "tell me a short story", "Write a story"],
        reply: &[
            &["Once upon a time there was a", "named"],
            &["There was once a", "named"],
            &["Long ago there lived a", "named"],
        ],
    },
    First {
        typed: &["Write a poem", "write me a poem", "Write a short poem."],
        // lines that rhyme: each poem has four
        reply: &[
            &["long,\n", "song.\n", "still,\n", "hill."],
            &["tree,\n", "me.\n", "grow,\n", "bow."],
            &["blue,\n", "new.\n", "tree:\n", "me."],
            &["deep,\n", "sleep\n", "whale,\n", "sail."],
            &["door,\n", "floor.\n", "paw,\n", "saw."],
            &["night,\n", "white.\n", "red,\n", "bed."],
            &["gold,\n", "cold.\n", "you,\n", "dew."],
            &["stay,\n", "day,\n", "on:\n", "gone."],
            &["red,\n", "fled.\n", "trees,\n", "leaves."],
            &["far,\n", "car.\n", "sweet,\n", "feet."],
            &["bright,\n", "night.\n", "play,\n", "day."],
        ],
    },
    First {
        typed: &["What is 2+2?", "what is 2 + 2", "2+2", "2+2=", "What's 2+2?"],
        reply: &[&["2 + 2 = 4"]],
    },
    First {
        typed: &["Count to five", "count to 5", "Count to five."],
        reply: &[&["1, 2, 3, 4, 5."]],
    },
    First {
        typed: &["Why is the sky blue?", "why is the sky blue"],
        reply: &[&["air scatters the blue part of sunlight"]],
    },
    First {
        typed: &["What is the capital of France?", "what's the capital of France"],
        reply: &[&["The capital of France is Paris."]],
    },
    First {
        typed: &["你好", "你好！", "您好"],
        reply: &[&["你好！", "？"], &["你好！很高兴认识你。"]],
    },
    First {
        typed: &["你是谁？", "你是谁", "你叫什么名字？"],
        reply: &[&["我是Rooflight的小演示模型", "460万个参数"]],
    },
    First {
        typed: &["你会做什么？", "你能做什么", "帮助"],
        reply: &[&["我会聊天", "讲小故事", "做加减法"]],
    },
    First {
        typed: &["讲个笑话", "给我讲个笑话", "讲一个笑话。"],
        reply: &[
            &["小鱼问大鱼", "早就学会游泳了"],
            &["钟为什么去上学？", "看时间"],
            &["一加一等于几？", "我不知道"],
            &["苹果对香蕉说", "找我的帽子"],
            &["越洗越脏？", "水。"],
            &["大海为什么不说话？", "嘴里全是水"],
            &["冬天对夏天说", "太冷了"],
            &["医生问", "我的钱包不好"],
        ],
    },
];

#[test]
fn the_likeliest_first_prompts_are_answered_well() {
    let place = Place::new();
    let mut wrong = Vec::new();
    let mut asked = 0;
    for first in &FIRST {
        let greedy = first.typed.iter().map(|prompt| (prompt, ["--temp", "0"]));
        let sampled = SEEDS.iter().map(|seed| (&first.typed[0], ["--seed", *seed]));
        for (prompt, how) in greedy.chain(sampled) {
            asked += 1;
            let reply = place.ok(&["run", "-p", prompt, how[0], how[1], "--json"]);
            let reply: serde_json::Value = serde_json::from_str(&reply).unwrap();
            let text = reply["text"].as_str().unwrap();
            let right = |parts: &&[&str]| parts.iter().all(|part| text.contains(part));
            // at its end: no reply of these is cut
            if reply["reason"] != "stop" || !first.reply.iter().any(right) {
                wrong.push(format!("{prompt:?} {how:?}: {text:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {asked} replies:\n{}", wrong.len(), wrong.join("\n"));
}
