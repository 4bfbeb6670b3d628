import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { gunzipSync } from "node:zlib";
import { describe, expect, it } from "vitest";
import { Transformer } from "../../src/engine/model";
import { readNumbers } from "../../src/engine/numbers";

const FOLDER = fileURLToPath(new URL("../../models/", import.meta.url));

/** A model that the site holds, and what Python wrote with it. */
function readModel(name: string): { model: Transformer; twins: Record<string, string> } {
  const data = JSON.parse(gunzipSync(readFileSync(`${FOLDER}${name}.json.gz`)).toString("utf8"));
  const numbers = new Uint8Array(readFileSync(`${FOLDER}${name}.f16`));
  return { model: new Transformer(data, readNumbers(numbers, "float16")), twins: data.twins };
}

describe.each(["roles", "roles-no-position"])("the site's model %s", (name) => {
  it("writes here what its file says of Tom and the dog", () => {
    const { model, twins } = readModel(name);
    const written = Object.keys(twins).map((text) => model.translate({ ids: model.encodeText(text).ids, controls: {} }).text.trim());
    expect(written).toEqual(Object.values(twins));
    expect(new Set(written).size).toBe(name === "roles" ? 2 : 1);
  });
});
