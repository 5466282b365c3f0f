// Command orders is the reference service: a shop that takes orders, announces what happens to them, and builds a
// read model of its customers from the announcements. It runs as one process or as several:
//
//	orders                                     everything in one process
//	ONCEBOX_SERVE_PARTS=api orders             takes requests
//	ONCEBOX_SERVE_PARTS=relay orders           publishes the outbox
//	ONCEBOX_SERVE_PARTS=consumers orders       builds the read model
//
// Any number of processes may do each part. Every process makes sure of tables, topic and subscription at its start.
//
//	export DATABASE_URL=postgres://postgres:secret@localhost:5432/postgres ONCEBOX_SERVE_BROKER=none
//	go run ./examples/orders &
//	curl -i localhost:8080/orders -H 'Idempotency-Key: k1' -d '{"customer_id":"c1","items":[{"sku":"a","qty":2,"price_cents":500}]}'
//	curl localhost:8080/customers/c1/summary
//
// The second request with the same key gets the stored answer, and the summary counts the order once.
//
// # Requests
//
//	POST /orders               {"customer_id":"c1","items":[{"sku":"a","qty":2,"price_cents":500}]}
//	POST /orders/{id}/items    {"sku":"b","qty":1,"price_cents":100}
//	POST /orders/{id}/cancel
//	GET  /orders/{id}
//	GET  /customers/{id}/summary
//	GET  /problems/            what is asked of keys, and what problems mean; /problems/openapi.json
//	GET  /healthz  /readyz  /metrics  /console/     see package serve
//
// Each takes X-Tenant-ID; a POST needs an Idempotency-Key. Bad input is 400, what the domain refuses 422, an unknown order
// 404, a key in flight 409.
//
// # Environment
//
// ONCEBOX_DATABASE_URL (or DATABASE_URL) is required. So is ONCEBOX_PULSAR_URL (or PULSAR_URL), unless
// ONCEBOX_SERVE_BROKER=none: then the database carries the events. The other variables are in docs/config.md; those of package serve begin with
// ONCEBOX_SERVE_.
//
// # Other brokers
//
// This program is built with Pulsar. The same program for another broker is a main of one line, in a module that has the client:
//
//	go run -C messaging/nats ./examples/orders
//
// # Reading
//
// The service is package shop: order.go is the domain, api.go the requests, summary.go the read model, service.go the wiring.
package main

import (
	"github.com/oncebox/oncebox/examples/orders/shop"
	"github.com/oncebox/oncebox/messaging/pulsar"
	"github.com/oncebox/oncebox/serve"
)

func main() { serve.Main(shop.Service(), pulsar.Kind()) }
