package pulsar

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/oncebox/oncebox/internal/await"
)

// bareProducer speaks Pulsar's protocol (PulsarApi.proto) without a client, to send what no client of ours would: what other
// clients send, and what nobody should.
type bareProducer struct {
	t    *testing.T
	cfg  *Config
	name string
	conn net.Conn
	in   *bufio.Reader
	sent uint64
}

// numbers of types and fields in PulsarApi.proto that are used here.
const (
	bareConnect, bareConnected, bareCreate, bareSend, bareReceipt, bareError = 2, 3, 5, 6, 7, 14
	bareCreated, barePing, barePong, bareLookup, bareFound                   = 17, 18, 19, 23, 24
)

// pb is a message of protocol buffers.
type pb []byte

func (m pb) number(field protowire.Number, n uint64) pb {
	return protowire.AppendVarint(protowire.AppendTag(m, field, protowire.VarintType), n)
}

func (m pb) bytes(field protowire.Number, b []byte) pb {
	return protowire.AppendBytes(protowire.AppendTag(m, field, protowire.BytesType), b)
}

func (m pb) text(field protowire.Number, s string) pb { return m.bytes(field, []byte(s)) }

// properties are key-value pairs.
func (m pb) properties(field protowire.Number, properties map[string]string) pb {
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		m = m.bytes(field, pb{}.text(1, name).text(2, properties[name]))
	}
	return m
}

// newBareProducer connects to a partition, of the only broker.
func newBareProducer(t *testing.T, cfg *Config, topic string) *bareProducer {
	t.Helper()
	p := &bareProducer{t: t, cfg: cfg, name: fmt.Sprintf("persistent://%s/%s/%s", cfg.Tenant, cfg.Namespace, topic)}
	p.connect()
	t.Cleanup(func() { _ = p.conn.Close() })
	return p
}

// connect makes the first connection, or another one: the broker closes a connection that answers no pings, and they are answered while a command
// is waited for only.
func (p *bareProducer) connect() {
	p.t.Helper()
	if p.conn != nil {
		require.NoError(p.t, p.conn.Close())
	}
	conn, err := net.Dial("tcp", strings.TrimPrefix(p.cfg.URL, "pulsar://"))
	require.NoError(p.t, err)
	p.conn, p.in = conn, bufio.NewReader(conn)
	p.command(bareConnect, pb{}.text(1, "bare").number(4, 19), nil)
	p.await(bareConnected)
	await.Nil(p.t, p.create, "the broker makes a producer of %s", p.name)
}

// Errors of the broker (ServerError in PulsarApi.proto) after which a client asks again.
const bareUnknown, bareNotReady, bareBusy = 0, 6, 16

// create asks for a producer. The broker may answer with an error while it opens the topic or gives up an earlier connection; each client asks again
// then. Any other error fails the test.
func (p *bareProducer) create() error {
	p.t.Helper()
	p.command(bareLookup, pb{}.text(1, p.name).number(2, 1), nil) // has the broker take the topic
	p.await(bareFound)
	p.command(bareCreate, pb{}.text(1, p.name).number(2, 1).number(3, 1), nil)
	kind, frame := p.await(bareCreated, bareError)
	if kind == bareError {
		require.Contains(p.t, []uint64{bareUnknown, bareNotReady, bareBusy}, serverError(frame), "the broker refuses: %q", frame)
		return fmt.Errorf("the broker answers %q", frame)
	}
	return nil
}

// serverError returns the code of an error: the second field of the command, which stands after the type of the frame.
func serverError(frame []byte) uint64 {
	rest := frame[4:] // without its length
	for range 2 {     // the type, and the head of the command
		_, _, n := protowire.ConsumeTag(rest)
		rest = rest[n:]
		_, n = protowire.ConsumeVarint(rest)
		rest = rest[n:]
	}
	_, _, n := protowire.ConsumeField(rest) // the request
	_, _, tag := protowire.ConsumeTag(rest[n:])
	code, _ := protowire.ConsumeVarint(rest[n+tag:])
	return code
}

func TestCodeOfAnErrorOfTheBroker(t *testing.T) {
	for code := range uint64(30) {
		command := pb{}.number(1, 7).number(2, code).text(3, "busy")
		require.Equal(t, code, serverError(append(make([]byte, 4), pb{}.number(1, bareError).bytes(bareError, command)...)))
	}
	require.EqualValues(t, bareUnknown, serverError([]byte("\x00\x00\x00\n\b\x0er\x06\b\x01\x10\x00\x1a\x00")), "as a broker has sent it")
}

// command writes a frame with a command. In Pulsar's protocol the type of a command is also the number of its field.
func (p *bareProducer) command(kind uint64, command pb, rest []byte) {
	p.t.Helper()
	whole := pb{}.number(1, kind).bytes(protowire.Number(kind), command)
	frame := binary.BigEndian.AppendUint32(nil, uint32(4+len(whole)+len(rest)))
	frame = append(binary.BigEndian.AppendUint32(frame, uint32(len(whole))), whole...)
	require.NoError(p.t, p.conn.SetDeadline(time.Now().Add(hang)))
	_, err := p.conn.Write(append(frame, rest...))
	require.NoError(p.t, err)
}

// await reads frames up to a frame of one of some kinds, and returns its kind and the frame.
func (p *bareProducer) await(kinds ...uint64) (kind uint64, frame []byte) {
	p.t.Helper()
	for {
		var size [4]byte
		_, err := io.ReadFull(p.in, size[:])
		require.NoError(p.t, err)
		frame = make([]byte, binary.BigEndian.Uint32(size[:]))
		_, err = io.ReadFull(p.in, frame)
		require.NoError(p.t, err)
		_, _, n := protowire.ConsumeTag(frame[4:])
		got, _ := protowire.ConsumeVarint(frame[4+n:])
		switch {
		case slices.Contains(kinds, got):
			return got, frame
		case got == barePing:
			p.command(barePong, pb{}, nil)
		default:
			require.FailNow(p.t, "the broker refuses", "command %d instead of %v: %q", got, kinds, frame)
		}
	}
}

// send sends a message with metadata, to which what every message needs is added, and waits for its receipt.
func (p *bareProducer) send(metadata pb, payload []byte) {
	p.t.Helper()
	p.sent++
	metadata = metadata.text(1, "bare").number(2, p.sent).number(3, uint64(time.Now().UnixMilli()))
	body := binary.BigEndian.AppendUint32(nil, uint32(len(metadata)))
	body = append(append(body, metadata...), payload...)
	rest := binary.BigEndian.AppendUint16(nil, 0x0e01) // a checksum follows
	rest = binary.BigEndian.AppendUint32(rest, crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)))
	p.command(bareSend, pb{}.number(1, 1).number(2, p.sent), append(rest, body...))
	p.await(bareReceipt)
}

// chunks sends a message in chunks, as clients for C++ and Python do without compression: without its size.
func (p *bareProducer) chunks(properties map[string]string, chunks ...string) {
	p.t.Helper()
	whole := strings.Join(chunks, "")
	for n, chunk := range chunks {
		metadata := pb{}.properties(4, properties).text(26, fmt.Sprint("chunked-", p.sent-uint64(n)))
		p.send(metadata.number(27, uint64(len(chunks))).number(28, uint64(len(whole))).number(29, uint64(n)), []byte(chunk))
	}
}
