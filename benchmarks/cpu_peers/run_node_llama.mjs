// llama.cpp's library as the npm package node-llama-cpp brings it, built for many processors: a sequence for every
// prompt of a line. A sequence keeps what it computed last, and a prompt goes to the one with the longest common start.
// Speaks what protocol.py says.
//
//     node run_node_llama.mjs --package FOLDER --model FILE --threads N --tokens N --seqs N

import {createInterface} from "node:readline";
import {readFileSync} from "node:fs";
import {pathToFileURL} from "node:url";
import {parseArgs} from "node:util";

const SEQUENCE_TOKENS = 1280; // the longest prompt of a line and its answer, rounded up

async function load(args) {
    const {getLlama} = await import(pathToFileURL(`${args.package}/dist/index.js`));
    const llama = await getLlama({gpu: false, build: "never", logLevel: "error", maxThreads: args.threads});
    const model = await llama.loadModel({modelPath: args.model});
    const context = await model.createContext({
        sequences: args.seqs, contextSize: SEQUENCE_TOKENS, threads: args.threads,
    });
    const {version} = JSON.parse(readFileSync(`${args.package}/package.json`));
    const {tag} = JSON.parse(readFileSync(`${args.package}/llama/llama.cpp.info.json`));
    return {
        sequences: Array.from({length: args.seqs}, () => context.getSequence()),
        hello: {
            about: `llama.cpp ${tag} in node-llama-cpp ${version}, weights of the file, float16 KV`,
            kv_item_bytes: 2,
            kv_pool_tokens: args.seqs * SEQUENCE_TOKENS,
        },
    };
}

function commonLength(a, b) {
    const length = Math.min(a.length, b.length);
    for (let i = 0; i < length; i++)
        if (a[i] !== b[i]) return i;
    return length;
}

/** Each prompt with a sequence of its own. */
function deal(prompts, sequences) {
    const free = new Set(sequences);
    return prompts.map((prompt) => {
        let best, bestLength = -1;
        for (const sequence of free) {
            const length = commonLength(sequence.contextTokens, prompt);
            if (length > bestLength) [best, bestLength] = [sequence, length];
        }
        free.delete(best);
        return [prompt, best];
    });
}

async function complete(prompt, sequence, out) {
    // The last token of a prompt is always computed: its scores are what the answer begins with.
    await sequence.adaptStateToTokens(prompt.slice(0, -1), false);
    const tokens = [];
    const missing = prompt.slice(sequence.nextTokenIndex);
    for await (const token of sequence.evaluate(missing, {temperature: 0, yieldEogToken: true}))
        if (tokens.push(token) === out) break;
    return tokens;
}

async function main() {
    const {values} = parseArgs({options: Object.fromEntries(
        ["package", "model", "threads", "tokens", "seqs"].map((name) => [name, {type: "string"}])
    )});
    const say = (answer) => process.stdout.write(JSON.stringify(answer) + "\n");
    try {
        const {sequences, hello} = await load({...values, threads: Number(values.threads), seqs: Number(values.seqs)});
        say(hello);
        for await (const line of createInterface({input: process.stdin})) {
            const {prompts, out} = JSON.parse(line);
            const began = performance.now();
            const tokens = await Promise.all(
                deal(prompts, sequences).map(([prompt, sequence]) => complete(prompt, sequence, out))
            );
            say({seconds: (performance.now() - began) / 1e3, tokens});
        }
    } catch (error) {
        say({error: String(error)});
        throw error;
    }
}

await main();
process.exit(0);
