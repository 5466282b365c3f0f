package console

import (
	"fmt"
	"time"
)

const (
	// span is the time that a plot of errors covers, and bars in how many parts.
	span = 24 * time.Hour
	bars = 24

	plotHeight = 28
	barWidth   = 6
)

// plot is a small picture of counts over time, the latest on the right.
type plot struct {
	counts [bars]int
	before int // what was earlier than the plot
}

// bar is one part of a plot, in the units of its picture.
type bar struct {
	X, Y, Width, Height int
	Title               string
}

func (p *plot) add(now, at time.Time) {
	ago := now.Sub(at)
	if ago >= span {
		p.before++
		return
	}
	p.counts[bars-1-min(max(int(ago*bars/span), 0), bars-1)]++
}

// Width and Height are those of the picture.
func (p *plot) Width() int  { return bars*barWidth - 1 }
func (p *plot) Height() int { return plotHeight }

// Bars are the parts that are not empty. The highest one is as high as the picture.
func (p *plot) Bars() (list []bar) {
	highest := 0
	for _, n := range p.counts {
		highest = max(highest, n)
	}
	for i, n := range p.counts {
		if n == 0 {
			continue
		}
		height := max(n*plotHeight/highest, 2)
		list = append(list, bar{i * barWidth, plotHeight - height, barWidth - 1, height, fmt.Sprintf("%d, %d h ago", n, bars-1-i)})
	}
	return list
}

// Text says the same for those who do not see the picture.
func (p *plot) Text() string {
	all, last := 0, 0
	for i, n := range p.counts {
		all += n
		if i == bars-1 {
			last = n
		}
	}
	return fmt.Sprintf("%d in the last 24 hours, %d of them in the last hour", all, last)
}
