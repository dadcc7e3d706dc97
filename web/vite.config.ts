import { svelte } from '@sveltejs/vite-plugin-svelte';
import { defineConfig } from 'vite';

// `npm run dev` serves the page from here and sends API calls to a running `muster serve` or `muster demo`.
const api = process.env.MUSTER_DEV_API ?? 'http://127.0.0.1:8080';

export default defineConfig({
  plugins: [svelte()],
  build: { target: 'es2022', assetsInlineLimit: 0, sourcemap: false, reportCompressedSize: true },
  server: { host: '127.0.0.1', proxy: { '/api': api, '/docs': api, '/livez': api, '/readyz': api } },
});
