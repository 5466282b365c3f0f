package main

import (
	"context"
	"sync"
	"time"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
)

// rateMeter passes messages on and notes when how many of them were confirmed.
type rateMeter struct {
	to messaging.Publisher

	mu     sync.Mutex
	points []ratePoint
}

type ratePoint struct {
	at time.Time
	n  int
}

// Publish passes msgs on.
func (m *rateMeter) Publish(ctx context.Context, msgs []event.Envelope) error {
	err := m.to.Publish(ctx, msgs)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.points = append(m.points, ratePoint{time.Now(), confirmed(msgs, err)})
	return err
}

// back returns how long after from the rate was reached again: until the end of the first second in which at least
// rate events were confirmed. It returns false if there was no such second.
func (m *rateMeter) back(from time.Time, rate int) (time.Duration, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	first, sum := 0, 0
	for i, p := range m.points {
		if p.at.Before(from) {
			first = i + 1
			continue
		}
		sum += p.n
		for p.at.Sub(m.points[first].at) > time.Second {
			sum -= m.points[first].n
			first++
		}
		if sum >= rate {
			return max(p.at.Sub(from), 0), true
		}
	}
	return 0, false
}

// seconds returns how many were confirmed in each of the n seconds after a moment.
func (m *rateMeter) seconds(from time.Time, n int) []int {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]int, n)
	for _, p := range m.points {
		if s := int(p.at.Sub(from) / time.Second); !p.at.Before(from) && s < n {
			out[s] += p.n
		}
	}
	return out
}
