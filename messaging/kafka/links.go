package kafka

import (
	"errors"
	"net"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/oncebox/oncebox/messaging"
)

// links knows whether the client of a receiver is connected. A consumer that is in its group always has a connection, for heartbeats.
type links struct {
	mu    sync.Mutex
	open  map[net.Conn]bool
	last  error // of the last attempt to connect
	group error // why the receiver is not in its group; nil if it is, or joins
	since time.Time
}

var (
	_ kgo.HookBrokerConnect    = (*links)(nil)
	_ kgo.HookBrokerDisconnect = (*links)(nil)
	_ kgo.HookGroupManageError = (*links)(nil)
)

func newLinks() *links {
	return &links{open: map[net.Conn]bool{}, since: time.Now(), last: errors.New("the first connection is being opened")}
}

func (l *links) isAway() bool { return len(l.open) == 0 || l.group != nil }

// update runs change, and notes the time if the state changes.
func (l *links) update(change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.isAway()
	change()
	if l.isAway() != before {
		l.since = time.Now()
	}
}

// OnBrokerConnect implements [kgo.HookBrokerConnect].
func (l *links) OnBrokerConnect(_ kgo.BrokerMetadata, _ time.Duration, conn net.Conn, err error) {
	l.update(func() {
		if l.last = err; err == nil {
			l.open[conn] = true
		}
	})
}

// OnBrokerDisconnect implements [kgo.HookBrokerDisconnect].
func (l *links) OnBrokerDisconnect(_ kgo.BrokerMetadata, conn net.Conn) {
	l.update(func() {
		delete(l.open, conn)
		if len(l.open) == 0 && l.last == nil {
			l.last = errors.New("the connection was lost")
		}
	})
}

// OnGroupManageError implements [kgo.HookGroupManageError].
func (l *links) OnGroupManageError(err error) { l.update(func() { l.group = err }) }

// joined is called when the receiver has joined its group.
func (l *links) joined() { l.update(func() { l.group = nil }) }

// Connection implements [messaging.ConnectedReceiver].
func (r *receiver) Connection() messaging.Connection {
	r.links.mu.Lock()
	defer r.links.mu.Unlock()
	c := messaging.Connection{Parts: 1, Since: r.links.since}
	if r.links.isAway() {
		c.Away, c.Err = 1, r.links.last
		if c.Err == nil {
			c.Err = r.links.group
		}
	}
	return c
}
