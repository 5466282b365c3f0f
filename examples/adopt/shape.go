package main

import (
	"context"
	"embed"
	"fmt"
	"slices"
	"strings"

	"github.com/oncebox/oncebox/outbox/adopt"
)

//go:embed mappings/*.yaml
var mappings embed.FS

// shape is a kind of table.
type shape struct {
	name  string
	topic string // the topic that the mapping gives the events
	open  func(ctx context.Context, s *site) (oldCode, error)
}

// shapes are the six tables. Each has a guide in docs/migrating.
func shapes() []shape {
	return []shape{
		{"handwritten", "order", openHandwritten},
		{"debezium", "outbox.event.order", openDebezium},
		{"watermill", "order", openWatermill},
		{"river", "order", openRiver},
		{"oagudo", "order", openOagudo},
		{"masstransit", "order", openMassTransit},
	}
}

func shapeOf(name string) (shape, error) {
	all := shapes()
	if at := slices.IndexFunc(all, func(s shape) bool { return s.name == name }); at >= 0 {
		return all[at], nil
	}
	names := make([]string, len(all))
	for i := range all {
		names[i] = all[i].name
	}
	return shape{}, fmt.Errorf("there is no example %q: choose one of %s", name, strings.Join(names, ", "))
}

// mapping reads the mapping of a shape. schema replaces "public" in it.
func (s shape) mapping(schema string) (*adopt.Mapping, error) {
	text, err := mappings.ReadFile("mappings/" + s.name + ".yaml")
	if err != nil {
		return nil, err
	}
	return adopt.Read(strings.NewReader(strings.ReplaceAll(string(text), "public.", schema+".")))
}
