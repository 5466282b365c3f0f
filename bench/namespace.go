package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"

	"github.com/apache/pulsar-client-go/pulsar"
	plog "github.com/apache/pulsar-client-go/pulsar/log"

	"github.com/oncebox/oncebox/internal/devenv"
)

// partitions is how many each topic has: what the adapter makes unless told otherwise.
const partitions = 4

// namespace is a Pulsar namespace for one command. Its topics keep what they got until they are removed.
type namespace struct {
	server *devenv.PulsarServer
	client pulsar.Client
	name   string // without the tenant, which is "public"
}

func newNamespace(ctx context.Context, server *devenv.PulsarServer) (*namespace, error) {
	client, err := pulsar.NewClient(pulsar.ClientOptions{URL: server.URL, Logger: plog.NewLoggerWithSlog(slog.Default())})
	if err != nil {
		return nil, fmt.Errorf("connect to Pulsar: %w", err)
	}
	n := &namespace{server: server, client: client, name: "bench-" + strings.ToLower(rand.Text()[:16])}
	err = n.admin(ctx, http.MethodPut, "/namespaces/public/"+n.name, "")
	if err == nil {
		err = n.admin(ctx, http.MethodPost, "/namespaces/public/"+n.name+"/retention", `{"retentionTimeInMinutes":-1,"retentionSizeInMB":-1}`)
	}
	if err != nil {
		client.Close()
		return nil, err
	}
	return n, nil
}

// close removes the namespace, also when the program is interrupted: the server may belong to somebody else.
func (n *namespace) close(ctx context.Context) {
	n.client.Close()
	if err := n.server.RemoveNamespace(context.WithoutCancel(ctx), "public/"+n.name); err != nil {
		progressf("%v", err)
	}
}

func (n *namespace) topic(name string) string { return "persistent://public/" + n.name + "/" + name }

func (n *namespace) topicPath(name string) string {
	return "/persistent/public/" + n.name + "/" + name + "/partitions"
}

func (n *namespace) createTopic(ctx context.Context, name string) error {
	return n.admin(ctx, http.MethodPut, n.topicPath(name), strconv.Itoa(partitions))
}

func (n *namespace) removeTopic(ctx context.Context, name string) error {
	return n.admin(context.WithoutCancel(ctx), http.MethodDelete, n.topicPath(name)+"?force=true", "")
}

// read hands over every message that is in the topic now, of each partition in its order.
func (n *namespace) read(ctx context.Context, name string, take func(pulsar.Message)) (err error) {
	reader, err := n.client.CreateReader(pulsar.ReaderOptions{Topic: n.topic(name), StartMessageID: pulsar.EarliestMessageID()})
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	defer reader.Close()
	for reader.HasNext() {
		m, err := reader.Next(ctx)
		if err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		take(m)
	}
	return nil
}

// admin sends a request with a JSON body, if there is one, to a path below /admin/v2.
func (n *namespace) admin(ctx context.Context, method, path, body string) error {
	_, err := n.server.Admin(ctx, method, path, body)
	return err
}
