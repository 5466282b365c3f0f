package session

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"sync"

	natsclient "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// acks passes on what streams answer to messages. Package jetstream does that, too, but takes longer for a message than the way to the server and
// back: it keeps each message, with a future, and decodes each answer. The zero value is ready to listen.
type acks struct {
	conn   *natsclient.Conn
	prefix string // of the subjects for answers, which end with the number of the message

	mu   sync.Mutex
	last uint64
	open map[uint64]sent // by number
	mute error           // why no answer can come
}

// sent is a message without an answer.
type sent struct {
	subject string
	receipt func(error)
}

// listen is called once, before the first message.
func (a *acks) listen(conn *natsclient.Conn) error {
	a.conn, a.prefix, a.open = conn, conn.NewInbox()+".", map[uint64]sent{}
	_, err := conn.Subscribe(a.prefix+"*", a.take)
	return err
}

// publish sends a message, which it does not keep, and returns its number.
func (a *acks) publish(m *natsclient.Msg, receipt func(error)) uint64 {
	a.mu.Lock()
	a.last++
	n, err := a.last, a.mute
	a.open[n] = sent{m.Subject, receipt}
	a.mu.Unlock()
	if err == nil {
		m.Reply = a.prefix + strconv.FormatUint(n, 36)
		err = a.conn.PublishMsg(m)
	}
	if err != nil {
		a.answer(n, err)
	}
	return n
}

// take reads an answer. An answer to a message that was forgotten is ignored.
func (a *acks) take(m *natsclient.Msg) {
	if n, err := strconv.ParseUint(strings.TrimPrefix(m.Subject, a.prefix), 36, 64); err == nil {
		a.answer(n, answerOf(m))
	}
}

// answer passes on the outcome of a message, once.
func (a *acks) answer(n uint64, err error) {
	a.mu.Lock()
	s, found := a.open[n]
	delete(a.open, n)
	a.mu.Unlock()
	if found {
		s.receipt(err)
	}
}

// forget drops messages whose receipts nobody needs any more.
func (a *acks) forget(numbers []uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, n := range numbers {
		delete(a.open, n)
	}
}

// end answers the messages for a subject, "" for all, that the server will not answer.
func (a *acks) end(subject string, err error) {
	a.mu.Lock()
	var ended []uint64
	for n, s := range a.open {
		if subject == "" || s.subject == subject {
			ended = append(ended, n)
		}
	}
	a.mu.Unlock()
	for _, n := range ended {
		a.answer(n, err)
	}
}

// isInbox reports whether answers come to a subject, as far as this connection chooses.
func (a *acks) isInbox(subject string) bool {
	own := strings.TrimSuffix(a.prefix, ".")
	return strings.HasPrefix(subject, own[:strings.LastIndexByte(own, '.')+1])
}

// silence makes further messages fail, and ends those under way, because no answer can come. nil allows further ones.
func (a *acks) silence(err error) {
	a.mu.Lock()
	a.mute = err
	a.mu.Unlock()
	if err != nil {
		a.end("", err)
	}
}

// answerOf returns nil if a stream has stored the message.
func answerOf(m *natsclient.Msg) error {
	if len(m.Data) == 0 && m.Header.Get("Status") == "503" {
		return jetstream.ErrNoStreamResponse
	}
	// Nearly all answers are {"stream":"oncebox-order", "seq":12}. Decoding costs as much as all else that is done with an answer.
	if bytes.HasPrefix(m.Data, []byte(`{"stream":"`)) && !bytes.Contains(m.Data, []byte(`"error"`)) {
		return nil
	}
	var answer struct {
		Error  *jetstream.APIError `json:"error"`
		Stream string              `json:"stream"`
	}
	switch err := json.Unmarshal(m.Data, &answer); {
	case err == nil && answer.Error != nil:
		return answer.Error
	case err != nil || answer.Stream == "":
		return jetstream.ErrInvalidJSAck
	}
	return nil
}
