package oncetest

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/oncebox/oncebox/internal/pgsql"
)

// wire is a connection to PostgreSQL that can be cut at the COMMIT of a unit of work. It looks at the messages of the server (PostgreSQL,
// "Message Formats") and hands out whole ones only, so that the last message to a dead process does not fall into the middle of another.
//
// One goroutine writes and one reads, perhaps another. When pgx gives a connection up it reads what is left, beside a read that it has begun
// in the background.
type wire struct {
	net.Conn

	process *process
	conn    atomic.Pointer[pgconn.PgConn] // nil while the session begins
	commits atomic.Bool                   // COMMIT was sent, and its answer was not read
	storing atomic.Bool                   // the statement stores the result of a step, which has the point AfterCall

	reading   sync.Mutex
	in        []byte // received bytes, from the first incomplete message on
	held      []byte // messages that wait until it is clear whether the answer to COMMIT follows
	committed bool   // the answer to COMMIT is among held
	out       []byte // bytes that Read may return
	told      bool   // the last message was returned to pgx
}

// Write sends what the process writes. It drops everything from a dead process, which gets its error when it reads.
func (w *wire) Write(b []byte) (int, error) {
	if w.process.isDead() {
		return len(b), nil
	}
	if c := w.conn.Load(); c != nil && pgsql.IsCommitting(c) && !w.storing.Load() {
		if w.process.reach(BeforeCommit) {
			return len(b), nil
		}
		w.commits.Store(true)
	}
	return w.Conn.Write(b)
}

// Read returns what the server has sent.
func (w *wire) Read(b []byte) (int, error) {
	w.reading.Lock()
	defer w.reading.Unlock()
	for len(w.out) == 0 {
		if w.process.isDead() {
			if w.told {
				return 0, io.EOF
			}
			w.told, w.out = true, w.lastMessage()
			break
		}
		buffer := make([]byte, max(len(b), 1<<10))
		n, err := w.Conn.Read(buffer)
		w.in = append(w.in, buffer[:n]...)
		w.sort()
		if err != nil && len(w.out) == 0 && !w.process.isDead() {
			if len(w.held) == 0 {
				return 0, err
			}
			w.out, w.held = w.held, nil // the next Read returns the error
		}
	}
	n := copy(b, w.out)
	w.out = w.out[n:]
	return n, nil
}

// sort takes the complete messages out of in. It holds messages back that may end with the answer to a COMMIT. If the
// process dies at that COMMIT, they are never returned.
func (w *wire) sort() {
	for {
		const head = 5 // a byte for the kind, and four for the length
		if len(w.in) < head {
			return
		}
		end := 1 + int(binary.BigEndian.Uint32(w.in[1:head]))
		if len(w.in) < end {
			return
		}
		kind, body := w.in[0], w.in[head:end]
		w.held = append(w.held, w.in[:end]...)
		w.in = w.in[end:]
		if w.commits.Load() {
			w.committed = w.committed || kind == 'C' && bytes.Equal(body, []byte("COMMIT\x00"))
			if kind != 'Z' { // ReadyForQuery
				continue
			}
			if body[0] == 'I' { // no transaction is open; otherwise the answer belongs to a statement before COMMIT
				w.commits.Store(false)
				if w.committed && w.process.reach(AfterCommit) {
					return
				}
				w.committed = false
			}
		}
		w.out, w.held = append(w.out, w.held...), nil
	}
}

// lastMessage returns an error of the server for a process that dies at a COMMIT. Package uow takes it for
// a refusal of the COMMIT. After a lost connection, or a message that the session has ended, it would look
// for the outcome until its time is over.
func (w *wire) lastMessage() []byte {
	<-w.process.died
	message := &pgproto3.ErrorResponse{
		Severity: "FATAL", SeverityUnlocalized: "ERROR", Code: "XX000", Message: w.process.dead().Error(),
	}
	b, err := message.Encode(nil)
	if err != nil {
		return nil // an error message always fits
	}
	return b
}

// Close ends the connection.
func (w *wire) Close() error {
	w.process.mu.Lock()
	defer w.process.mu.Unlock()
	delete(w.process.wires, w)
	return w.Conn.Close()
}
