// transformers.js in node: AutoModel's `sentence_embedding`, and the feature-extraction pipeline where no head follows.
import fs from "node:fs";
import path from "node:path";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [folder, texts, dtype, way, modules] = process.argv.slice(2);
const require = createRequire(path.join(modules, "package.json"));
const entry = require.resolve("@huggingface/transformers");
const { AutoModel, AutoTokenizer, env, pipeline } = await import(pathToFileURL(entry));
const about = path.join(modules, "node_modules", "@huggingface", "transformers", "package.json");

env.allowRemoteModels = false;
env.localModelPath = path.dirname(path.dirname(folder)) + path.sep;
const name = path.join(path.basename(path.dirname(folder)), path.basename(folder));
const given = JSON.parse(fs.readFileSync(texts, "utf8"));
let vectors;
if (way === "pipeline") {
  const embed = await pipeline("feature-extraction", name, { dtype });
  vectors = (await embed(given, { pooling: "mean", normalize: true })).tolist();
} else {
  const tokenizer = await AutoTokenizer.from_pretrained(name);
  const model = await AutoModel.from_pretrained(name, { dtype });
  const inputs = await tokenizer(given, { padding: true, truncation: true });
  vectors = (await model(inputs)).sentence_embedding.tolist();
}
const version = JSON.parse(fs.readFileSync(about, "utf8")).version;
console.log("\n" + JSON.stringify({ versions: { "@huggingface/transformers": version }, vectors }));
