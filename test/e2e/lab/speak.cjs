// In a pod: a new flow of each protocol to each host given, ten times a second, that says who sent it and its number. A
// datagram from a port that was used half a minute ago would belong to the connection of then, and leave as that one does:
// so ports go round, in more than an hour.
const dgram = require('node:dgram');
const net = require('node:net');

const PORT = 9999;
const [FIRST, PORTS] = [10_000, 50_000];
const [name, ...hosts] = process.argv.slice(2);
let number = 0;
setInterval(() => {
  number += 1;
  for (const host of hosts) {
    const family = host.includes(':') ? 6 : 4;
    const text = `${name}.${family}.${number}`;
    const socket = dgram.createSocket({ type: `udp${family}`, ipv6Only: family === 6 });
    socket.on('error', () => {});
    socket.bind(FIRST + (number % PORTS), () => socket.send(text, PORT, host));
    setTimeout(() => socket.close(), 500);
    const connection = net.connect({ port: PORT, host, family }, () => connection.write(text));
    connection.on('error', () => {});
    connection.setTimeout(900, () => connection.destroy());
  }
}, 100);
process.once('SIGTERM', () => process.exit(0));
