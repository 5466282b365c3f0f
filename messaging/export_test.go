package messaging

// Pause stops the flow of messages to a consumer without a loop.
func (c *Consumer) Pause() { c.setPaused(true) }
