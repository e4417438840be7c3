"use strict";
/* What the page carries in little: its texts are deflated and written in 85 signs (packing.py). */
async function unpack(id) {
  const SIGNS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;,=>?@^_`{|}~";
  const place = new Uint8Array(128);
  for (let i = 0; i < 85; i++) place[SIGNS.charCodeAt(i)] = i;
  const held = document.getElementById(id), packed = held.textContent;
  const from = packed.indexOf(" ") + 1, words = (packed.length - from) / 5;
  const bytes = new DataView(new ArrayBuffer(4 * words));
  for (let word = 0, at = from; word < words; word++) {
    let value = 0;
    for (const end = at + 5; at < end; at++) value = 85 * value + place[packed.charCodeAt(at)];
    bytes.setUint32(4 * word, value);
  }
  const deflated = new Blob([new Uint8Array(bytes.buffer, 0, Number(packed.slice(0, from)))]);
  const text = await new Response(deflated.stream().pipeThrough(new DecompressionStream("deflate"))).text();
  held.textContent = "";
  return text;
}
