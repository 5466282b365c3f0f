package kafka

import (
	"strings"
	"testing"

	"github.com/oncebox/oncebox/internal/newcomer"
)

// The program of the README runs on Kafka with what the README says about it, and nothing else.
func TestFiveStepsOnKafka(t *testing.T) {
	t.Parallel()
	p := newcomer.Program{Root: "../..", Adapter: "kafka", URL: strings.Join(cluster(t).ListenAddrs(), ",")}
	p.Try(t)
}
