package fetch

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	natsclient "github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"
)

// members lets the receivers of a subscription notice each other, to divide the partitions among themselves. It decides only who should ask for a
// partition; the server decides who gets it. So while receivers disagree, because a message was lost for example, a partition may wait, and never has
// two owners.
type members struct {
	receiver *Receiver
	subject  string
	me       member
	timeout  time.Duration // after which a member that is silent does not count any more

	mu    sync.Mutex
	known map[string]member // the others, by their id
}

// member is a receiver, and the message that announces it.
type member struct {
	// Name orders the members. It stays the same after a restart, so that few partitions move.
	Name string `json:"name"`
	// ID distinguishes receivers that have the same name.
	ID string `json:"id"`
	// Is is what the message is about: joined, here or left. Others answer to joined.
	Is string `json:"is"`

	seen time.Time
}

const (
	joined = "joined"
	here   = "here"
	left   = "left"
)

func newMembers(r *Receiver, subject, name string, timeout time.Duration) *members {
	return &members{
		receiver: r, subject: subject, me: member{Name: name, ID: nuid.Next()}, timeout: timeout, known: map[string]member{},
	}
}

// run announces this receiver and listens to the others until ctx is done.
func (m *members) run(ctx context.Context) {
	m.divide()
	conn := m.receiver.session.Conn
	in := make(chan *natsclient.Msg, 256)
	sub, err := conn.ChanSubscribe(m.subject, in)
	if err != nil {
		return // the connection is closed
	}
	defer func() { _ = sub.Unsubscribe() }() // it fails only if the connection is closed
	ticker := time.NewTicker(m.timeout / 3)
	defer ticker.Stop()
	m.say(joined)
	for {
		up, err := m.receiver.session.Wait(ctx)
		if err != nil {
			break
		}
		select {
		case msg := <-in:
			m.take(msg)
		case <-ticker.C:
			m.say(here)
			m.divide()
		case <-up: // announcements were lost with the connection
			if _, err := m.receiver.session.Wait(ctx); err == nil {
				m.say(joined)
			}
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			break
		}
	}
	m.say(left)
}

// say announces something about this receiver. If the message gets lost, the next tick repeats it.
func (m *members) say(what string) {
	me := m.me
	me.Is = what
	body, err := json.Marshal(me)
	if err == nil {
		_ = m.receiver.session.Conn.Publish(m.subject, body)
	}
}

// take reads the announcement of another receiver.
func (m *members) take(msg *natsclient.Msg) {
	var who member
	if json.Unmarshal(msg.Data, &who) != nil || who.ID == "" || who.ID == m.me.ID {
		return
	}
	m.mu.Lock()
	who.seen = time.Now()
	if who.Is == left {
		delete(m.known, who.ID)
	} else {
		m.known[who.ID] = who
	}
	m.mu.Unlock()
	m.divide()
	if who.Is == joined {
		m.say(here)
	}
}

// divide assigns the partitions to the members in turns, and marks the partitions that this receiver should have.
func (m *members) divide() {
	m.mu.Lock()
	all := []member{m.me}
	for id, who := range m.known {
		if time.Since(who.seen) > m.timeout {
			delete(m.known, id)
			continue
		}
		all = append(all, who)
	}
	m.mu.Unlock()
	slices.SortFunc(all, func(a, b member) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID)) })
	r := m.receiver
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.partitions {
		wanted := all[p.index%len(all)].ID == m.me.ID
		if wanted != p.wanted {
			p.wanted = wanted
			p.wake()
		}
	}
}
