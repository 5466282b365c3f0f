package pgsql

import (
	encoding "encoding/binary"
	"io"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// A message of PostgreSQL's protocol is a byte, its kind, and the length of the rest (PostgreSQL 55.7, Message Formats).
const messageHead = 5

// readAlong lets e read every message on the connection, beneath all of its handles. TLS is applied further out.
func (e *ending) readAlong(build pgconn.BuildFrontendFunc) pgconn.BuildFrontendFunc {
	return func(r io.Reader, w io.Writer) *pgproto3.Frontend {
		*e = ending{} // pgx builds another one for each host that it tries
		return build(&answers{Reader: r, ending: e}, &questions{Writer: w, ending: e})
	}
}

// answers are the messages of the server.
type answers struct {
	io.Reader

	ending *ending
	head   [messageHead]byte
	known  int // bytes of the head
	left   int // bytes of the body that are still to come
	body   [32]byte
	kept   int // bytes of the body: it is of two kinds, of which no more is looked at
}

// Read reads.
func (a *answers) Read(p []byte) (int, error) {
	n, err := a.Reader.Read(p)
	a.follow(p[:n])
	return n, err
}

// follow takes the bytes as they come: a message may be cut anywhere. Bodies are kept only of the two kinds
// that report how a transaction ended.
func (a *answers) follow(b []byte) {
	for len(b) > 0 {
		if a.known < messageHead {
			n := copy(a.head[a.known:], b)
			if a.known, b = a.known+n, b[n:]; a.known < messageHead {
				return
			}
			a.left, a.kept = bodyLen(a.head[1:]), 0
		}
		n := min(a.left, len(b))
		kind := a.head[0]
		if kind == 'C' || kind == 'Z' {
			a.kept += copy(a.body[a.kept:], b[:n])
		}
		if a.left, b = a.left-n, b[n:]; a.left > 0 {
			return
		}
		if a.known = 0; kind == 'C' || kind == 'Z' {
			a.ending.answered(kind, a.body[:a.kept])
		}
	}
}

// bodyLen is the length of a message's body. The length on the wire counts its own four bytes.
func bodyLen(length []byte) int { return int(encoding.BigEndian.Uint32(length)) - 4 }

// questions sees the messages that pgx sends. Each call of Write has whole messages.
type questions struct {
	io.Writer

	ending  *ending
	started bool // the first message, which has no kind, was written
}

// Write writes.
func (q *questions) Write(p []byte) (int, error) {
	q.follow(p)
	return q.Writer.Write(p)
}

// follow reads the kind of each message that pgx sends. The first one is the startup message, which has no kind.
func (q *questions) follow(b []byte) {
	if !q.started {
		q.started = true
		if len(b) < messageHead-1 {
			return
		}
		b = b[min(bodyLen(b[:4])+4, len(b)):]
	}
	for len(b) >= messageHead {
		kind, n := b[0], bodyLen(b[1:messageHead])
		b = b[messageHead:]
		n = max(0, min(n, len(b)))
		q.ending.asked(kind, b[:n])
		b = b[n:]
	}
}
