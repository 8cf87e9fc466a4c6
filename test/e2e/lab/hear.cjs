// The host outside: writes a line for each datagram and connection, `protocol source payload`, and answers.
const dgram = require('node:dgram');
const net = require('node:net');

const PORT = 9999;
const plain = address => address.replace(/^::ffff:/, '');
const heard = (protocol, address, payload) => {
  if (/^[\w.-]{1,100}$/.test(payload)) process.stdout.write(`${protocol} ${plain(address)} ${payload}\n`);
};

const socket = dgram.createSocket({ type: 'udp6' });
socket.on('message', (message, from) => {
  heard('udp', from.address, message.toString());
  socket.send('heard', from.port, from.address);
});
socket.bind(PORT, '::');
net
  .createServer(connection => {
    connection.on('data', data => {
      heard('tcp', connection.remoteAddress ?? '', data.toString());
      connection.end('heard');
    });
    connection.on('error', () => {});
  })
  .listen(PORT, '::');
