package messaging

import "github.com/oncebox/oncebox/telemetry"

// Observed is a broker that writes logs, traces or metrics. A broker is connected before the application exists, so the application calls Observe
// later, to set where they go. Settings in the broker's own configuration win. Until then traces and metrics go to the global providers.
type Observed interface {
	Observe(t telemetry.Config)
}
