package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"

	natsclient "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging/nats"
	"github.com/oncebox/oncebox/messaging/nats/natsserver"
	"github.com/oncebox/oncebox/messaging/wire"
)

// natsSite is a NATS server in this process.
type natsSite struct {
	natsServer *natsserver.Server
	dir        string
	clients    int
}

func openNATSSite(context.Context) (brokerSite, error) {
	dir, err := os.MkdirTemp("", "oncebox-bench-nats-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for NATS: %w", err)
	}
	server, err := natsserver.Start(&natsserver.Config{Dir: dir})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return &natsSite{natsServer: server, dir: dir}, nil
}

func (*natsSite) server() string { return "NATS 2.15.2, in this process" }

func (*natsSite) settings() string {
	return "PublishMsgAsync from memory by one goroutine, 4 subjects, 4,000 pending, file storage"
}

func (s *natsSite) connect(ctx context.Context) (oncebox.Broker, error) {
	return nats.Connect(ctx, &nats.Config{URL: s.natsServer.URL()})
}

func (s *natsSite) close() error {
	s.natsServer.Stop()
	return os.RemoveAll(s.dir)
}

// natsPending is the number of messages without a receipt. More are slower.
const natsPending = 4000

func (s *natsSite) byHand(ctx context.Context, topic string, sample []event.Envelope) (hand, error) {
	conn, err := natsclient.Connect(s.natsServer.URL())
	if err != nil {
		return nil, fmt.Errorf("connect to NATS: %w", err)
	}
	js, err := jetstream.New(conn, jetstream.WithPublishAsyncMaxPending(natsPending))
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("connect to NATS: %w", err)
	}
	s.clients++
	name := topic + "-" + strconv.Itoa(s.clients) // each has a stream of its own
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: name, Subjects: []string{name + ".*"}}); err != nil {
		conn.Close()
		return nil, fmt.Errorf("make a stream: %w", err)
	}
	h := &natsHand{conn: conn, js: js}
	format := wire.NewFormat(wire.Binding{Prefix: "ce-", ContentType: "ce-datacontenttype", CarriesKey: true, Encodes: true})
	for i := range sample {
		m := natsclient.NewMsg(name + "." + strconv.Itoa(i%partitions))
		m.Data = sample[i].Payload
		for key, value := range format.Properties(nil, &sample[i]) {
			m.Header[key] = []string{value}
		}
		h.messages = append(h.messages, m)
	}
	return h, nil
}

// natsHand publishes by nats.go.
type natsHand struct {
	conn     *natsclient.Conn
	js       jetstream.JetStream
	messages []*natsclient.Msg
}

func (h *natsHand) flood(ctx context.Context, n int) error {
	for i := range n {
		m := *h.messages[i%len(h.messages)] // the client writes its reply subject into it
		_, err := h.js.PublishMsgAsync(&m)
		for errors.Is(err, jetstream.ErrTooManyStalledMsgs) { // no room for 200 ms, which a busy machine takes
			_, err = h.js.PublishMsgAsync(&m)
		}
		if err != nil {
			return fmt.Errorf("publish: %w", err)
		}
	}
	select {
	case <-h.js.PublishAsyncComplete():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (h *natsHand) send(ctx context.Context, i int) error {
	m := *h.messages[i]
	_, err := h.js.PublishMsg(ctx, &m)
	return err
}

func (h *natsHand) close() error {
	h.conn.Close()
	return nil
}
