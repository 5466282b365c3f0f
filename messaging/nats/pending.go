package nats

import (
	"sync"

	natsclient "github.com/nats-io/nats.go"
)

// pending holds the receipts that are expected. The client identifies a message by its address. The zero value is ready.
type pending struct {
	mu   sync.Mutex
	open map[*natsclient.Msg]func(error)
}

// expect sets the function for the answer to a message.
func (p *pending) expect(m *natsclient.Msg, receipt func(error)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open == nil {
		p.open = map[*natsclient.Msg]func(error){}
	}
	p.open[m] = receipt
}

// answer is called with the answer to a message. The answer is ignored if its call has ended.
func (p *pending) answer(m *natsclient.Msg, err error) {
	p.mu.Lock()
	receipt := p.open[m]
	delete(p.open, m)
	p.mu.Unlock()
	if receipt != nil {
		receipt(err)
	}
}

// forget drops the receipts of messages whose call has ended.
func (p *pending) forget(msgs []*natsclient.Msg) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range msgs {
		delete(p.open, m)
	}
}

// deny answers the messages for a subject to which this client may not publish.
func (p *pending) deny(subject string, err error) {
	p.mu.Lock()
	var denied []*natsclient.Msg
	for m := range p.open {
		if m.Subject == subject {
			denied = append(denied, m)
		}
	}
	p.mu.Unlock()
	for _, m := range denied {
		p.answer(m, err)
	}
}
