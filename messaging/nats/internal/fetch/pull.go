package fetch

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	natsclient "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/oncebox/oncebox/messaging/nats/internal/session"
)

// pull requests messages of one consumer, by the protocol of JetStream (ADR-13 of nats-architecture-and-design, and ADR-42 for pins). The client's own
// Fetch does not show when the server has answered a request, which is what the right to a partition depends on.
type pull struct {
	conn    *natsclient.Conn
	subject string // of the requests
	sub     *natsclient.Subscription
	in      chan *natsclient.Msg
	group   string // "" for a consumer without pins
	pin     string // what the server calls this process, "" before it has chosen it
}

// pinHeader has the name that the server gives to the process that it has chosen.
const pinHeader = "Nats-Pin-Id"

// pullRequest is the body of a request.
type pullRequest struct {
	Batch     int           `json:"batch"`
	Expires   time.Duration `json:"expires"`
	Heartbeat time.Duration `json:"idle_heartbeat,omitempty"`
	MaxBytes  int           `json:"max_bytes,omitempty"`
	Group     string        `json:"group,omitempty"`
	Pin       string        `json:"id,omitempty"`
}

// The ends of a request that are no errors.
var (
	errExpired  = errors.New("the request has expired")
	errTooSmall = errors.New("the next message is larger than the request allows")
)

// errIdle says that the server has no message for a request at present.
var errIdle = errors.New("the request waits")

// The reasons for which a spell ends.
var (
	errUnpinned = errors.New("the server has chosen another process")
	errSilent   = errors.New("the server does not answer")
	errGap      = errors.New("messages were delivered that did not arrive")
	errGone     = errors.New("the consumer was deleted")
	errLapsed   = errors.New("the server has not answered for so long that it may have chosen another process")
	errUnwanted = errors.New("the partition belongs to another process now")
)

// pullOf opens a subject for the messages of a consumer. room is the largest number of messages that one request asks for.
func pullOf(s *session.Session, stream, consumer, group string, room int) (*pull, error) {
	p := &pull{
		conn: s.Conn, subject: s.API + ".CONSUMER.MSG.NEXT." + stream + "." + consumer, group: group,
		in: make(chan *natsclient.Msg, room+16), // the rest is for the statuses
	}
	var err error
	p.sub, err = s.Conn.ChanSubscribe(s.Conn.NewInbox(), p.in)
	return p, err
}

// close ends the interest in messages. The server sees that before any later request of this connection.
func (p *pull) close() { _ = p.sub.Unsubscribe() } // it fails only without a connection, which ends the interest, too

// ask requests n messages. With maxBytes 1 there can be no message that is small enough, so the request only shows the server that this process is
// alive.
func (p *pull) ask(n, maxBytes int, expires, heartbeat time.Duration) error {
	body, err := json.Marshal(pullRequest{Batch: n, Expires: expires, Heartbeat: heartbeat, MaxBytes: maxBytes, Group: p.group, Pin: p.pin})
	if err != nil {
		return err
	}
	return p.conn.PublishRequest(p.subject, p.sub.Subject, body)
}

// statusOf returns the end of a request that m stands for, or errIdle, and nil if m is a message.
func statusOf(m *natsclient.Msg) error {
	if m.Reply != "" || m.Header.Get("Status") == "" { // messages have a subject for their acknowledgement
		return nil
	}
	text := m.Header.Get("Description")
	switch status := m.Header.Get("Status"); {
	case status == "100":
		return errIdle
	case status == "408", status == "404":
		return errExpired
	case status == "423":
		return errUnpinned
	case status == "503":
		return natsclient.ErrNoResponders
	case status == "409" && strings.Contains(text, "Exceeds MaxBytes"):
		return errTooSmall
	case status == "409" && strings.Contains(text, "Consumer Deleted"):
		return errGone
	default:
		return fmt.Errorf("the server answers %s %s", status, text)
	}
}

// isFinal reports whether waiting does not help: a stream or consumer does not exist any more, or the user has no permission.
func isFinal(err error) bool {
	return errors.Is(err, session.ErrDenied) || errors.Is(err, errGone) || errors.Is(err, jetstream.ErrStreamNotFound) ||
		errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrConsumerDoesNotExist)
}
