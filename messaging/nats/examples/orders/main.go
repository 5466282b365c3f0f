// Command orders is the reference service on NATS. See https://pkg.go.dev/github.com/oncebox/oncebox/examples/orders.
package main

import (
	"github.com/oncebox/oncebox/examples/orders/shop"
	"github.com/oncebox/oncebox/messaging/nats"
	"github.com/oncebox/oncebox/serve"
)

func main() { serve.Main(shop.Service(), nats.Kind()) }
