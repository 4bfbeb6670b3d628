import { defineConfig } from "vitest/config";

// One script and one style sheet, which Python puts into the page: nothing may be loaded from anywhere else, and a
// build gives the same bytes everywhere, because they are committed and compared.
export default defineConfig({
  build: {
    outDir: "../src/clockhands/exploring/bundle",
    emptyOutDir: true,
    target: "es2022",
    cssCodeSplit: false,
    modulePreload: false,
    lib: {
      entry: "src/ui/main.tsx",
      name: "ClockhandsExplorer",
      formats: ["iife"],
      fileName: () => "explorer.js",
      cssFileName: "explorer",
    },
  },
  define: { "process.env.NODE_ENV": JSON.stringify("production") },
  worker: { format: "iife" },
  // A browser that starts while other tests run takes its time.
  test: { include: ["tests/**/*.test.{ts,tsx}"], testTimeout: 30_000 },
});
