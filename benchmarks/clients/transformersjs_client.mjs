// transformers.js in node: AutoModel's `sentence_embedding`, or the feature-extraction pipeline where no head follows.
import fs from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";

const [jobs, modules, way] = process.argv.slice(2);
const require = createRequire(path.join(modules, "package.json"));
const { AutoModel, AutoTokenizer, env, pipeline } = await import(
  pathToFileURL(require.resolve("@huggingface/transformers"))
);
const about = path.join(modules, "node_modules", "@huggingface", "transformers", "package.json");
const content = JSON.parse(fs.readFileSync(jobs, "utf8"));
env.allowRemoteModels = false;

async function embed({ folder, file }, texts) {
  env.localModelPath = path.dirname(folder) + path.sep;
  const name = path.basename(folder);
  const dtype = file ? "int8" : "fp32";
  if (way === "pipeline") {
    const pipe = await pipeline("feature-extraction", name, { dtype });
    return (await pipe(texts, { pooling: "mean", normalize: true })).tolist();
  }
  const tokenizer = await AutoTokenizer.from_pretrained(name);
  const model = await AutoModel.from_pretrained(name, { dtype });
  return (await model(await tokenizer(texts, { padding: true, truncation: true }))).sentence_embedding.tolist();
}

const answers = [];
for (const job of content.jobs) {
  try {
    answers.push({ vectors: await embed(job, content.texts) });
  } catch (error) {
    answers.push({ error: String(error).slice(0, 300) });
  }
}
const version = JSON.parse(fs.readFileSync(about, "utf8")).version;
console.log("\n" + JSON.stringify({ versions: { "@huggingface/transformers": version }, answers }));
