package session

import (
	"errors"
	"testing"

	natsclient "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

// Only an acknowledgement counts as stored. Whatever else comes is an error.
func TestAnswers(t *testing.T) {
	for data, wanted := range map[string]error{
		`{"stream":"oncebox-order", "seq":12}`:                                       nil,
		`{"stream":"oncebox-order", "domain":"hub", "seq":12}`:                       nil,
		`{"stream":"oncebox-order","seq":12,"duplicate":true}`:                       nil,
		`{"seq":12,"stream":"oncebox-order"}`:                                        nil,
		`{"stream":"error", "seq":12}`:                                               nil,
		`{"error":{"code":503,"err_code":10077},"stream":"oncebox-order","seq":0}`:   &jetstream.APIError{ErrorCode: 10077},
		`{"stream":"oncebox-order","seq":0,"error":{"code":503,"err_code":10077}}`:   &jetstream.APIError{ErrorCode: 10077},
		`{"stream":"oncebox-order","error" : {"code":400,"err_code":10060},"seq":0}`: &jetstream.APIError{ErrorCode: 10060},
		`{"seq":12}`: jetstream.ErrInvalidJSAck,
		`+OK`:        jetstream.ErrInvalidJSAck,
		``:           jetstream.ErrInvalidJSAck,
	} {
		require.ErrorIs(t, answerOf(&natsclient.Msg{Data: []byte(data)}), wanted, data)
	}
	none := natsclient.Header{"Status": {"503"}}
	require.ErrorIs(t, answerOf(&natsclient.Msg{Header: none}), jetstream.ErrNoStreamResponse)
}

// Each message gets one answer, and a message that was forgotten none. Without a connection the answer is that it was not sent.
func TestAnswersComeOnce(t *testing.T) {
	a := &acks{prefix: "_INBOX.x.", open: map[uint64]sent{}}
	var got []error
	send := func(subject string) uint64 { // without a connection
		a.mu.Lock()
		defer a.mu.Unlock()
		a.last++
		a.open[a.last] = sent{subject, func(err error) { got = append(got, err) }}
		return a.last
	}
	take := func(subject string) {
		a.take(&natsclient.Msg{Subject: subject, Data: []byte(`{"stream":"s", "seq":1}`)})
	}
	for range 40 {
		send("s.0")
	}
	take("_INBOX.x.1")
	take("_INBOX.x.1")
	take("_INBOX.x.10") // 36 in decimal digits
	take("_INBOX.x.?")
	require.Equal(t, []error{nil, nil}, got)
	require.NotContains(t, a.open, uint64(36))

	a.forget([]uint64{2, 3})
	take("_INBOX.x.2")
	require.Len(t, got, 2)
	other := send("s.1")
	lost := errors.New("lost")
	a.end("s.0", lost)
	require.Len(t, got, 38)
	require.Equal(t, lost, got[37])
	require.Contains(t, a.open, other)
	a.end("", lost)
	require.Empty(t, a.open)

	got = nil
	a.silence(errMute)
	a.publish(&natsclient.Msg{Subject: "s.0"}, func(err error) { got = append(got, err) })
	require.Equal(t, []error{errMute}, got)
	a.silence(nil)
	a.publish(&natsclient.Msg{Subject: "s.0"}, func(err error) { got = append(got, err) })
	require.ErrorIs(t, got[1], natsclient.ErrInvalidConnection)
	require.True(t, a.isInbox("_INBOX.y.*"))
	require.False(t, a.isInbox("oncebox.members.order.billing"))
}
