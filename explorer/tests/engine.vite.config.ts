import { defineConfig } from "vite";

// The engine alone, for tests that put it into a page beside its own script.
export default defineConfig({
  build: {
    target: "es2022",
    emptyOutDir: false,
    lib: { entry: "src/engine/api.ts", name: "Engine", formats: ["iife"], fileName: () => "engine.js" },
  },
  worker: { format: "iife" },
});
