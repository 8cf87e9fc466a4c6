// In a pod: a new flow of each protocol to each host given, ten times a second, that says who sent it and its number.
const dgram = require('node:dgram');
const net = require('node:net');

const PORT = 9999;
const [name, ...hosts] = process.argv.slice(2);
let number = 0;
setInterval(() => {
  number += 1;
  for (const host of hosts) {
    const family = host.includes(':') ? 6 : 4;
    const text = `${name}.${family}.${number}`;
    const socket = dgram.createSocket(`udp${family}`);
    socket.on('error', () => {});
    socket.send(text, PORT, host);
    setTimeout(() => socket.close(), 500);
    const connection = net.connect({ port: PORT, host, family }, () => connection.write(text));
    connection.on('error', () => {});
    connection.setTimeout(900, () => connection.destroy());
  }
}, 100);
process.once('SIGTERM', () => process.exit(0));
