package fetch

import (
	"context"
	"testing"
	"time"

	natsclient "github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/adapters"
)

// receiverOf returns a receiver without a server, with messages that wait.
func receiverOf(waiting int) (*Receiver, *spell) {
	r := &Receiver{Gate: adapters.NewGate()}
	p := &partition{receiver: r, look: make(chan struct{}, 1), wanted: true}
	s := &spell{partition: p, until: time.Now().Add(time.Hour), open: map[uint64]*delivery{}}
	p.spell = s
	for n := range waiting {
		md := &natsclient.MsgMetadata{}
		md.Sequence.Stream = uint64(n)
		r.last++
		r.put(&delivery{receiver: r, spell: s, msg: &natsclient.Msg{Header: natsclient.Header{}}, md: md, number: r.last})
	}
	return r, s
}

// If a message is not handed out, because the server may have chosen another process, no later message is, whatever the server says afterwards.
func TestDroppedMessageIsNotOvertaken(t *testing.T) {
	for name, change := range map[string]func(s *spell, to bool){
		"silence": func(s *spell, ours bool) {
			s.until = time.Now().Add(map[bool]time.Duration{true: time.Hour, false: -time.Second}[ours])
		},
		"another member": func(s *spell, ours bool) { s.partition.wanted = ours },
	} {
		r, s := receiverOf(3)
		first, err := r.next(t.Context())
		require.NoError(t, err)
		require.NotNil(t, first)
		change(s, false)
		m, err := r.next(t.Context())
		require.NoError(t, err)
		require.Nil(t, m, name)
		change(s, true)
		m, err = r.next(t.Context())
		require.NoError(t, err)
		require.Nil(t, m, "%s: a later message was handed out", name)
		require.True(t, s.over, name)

		r, s = receiverOf(2)
		first, err = r.next(t.Context())
		require.NoError(t, err)
		change(s, false)
		require.NoError(t, r.Redeliver(context.Background(), first))
		change(s, true)
		m, err = r.next(t.Context())
		require.NoError(t, err)
		require.Nil(t, m, "%s: a message overtook one that was given back", name)
	}
}
