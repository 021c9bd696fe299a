// SPDX-License-Identifier: MIT OR Apache-2.0

// What the runtime of Go does beneath: threads, a heap that is collected, timers, signals, files. Prints the same wherever
// it runs.
package main

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

func work(n int) int {
	sum := 0
	for i := 0; i < n; i++ {
		sum = (sum*31 + i) % 1000003
	}
	return sum
}

func main() {
	runtime.GOMAXPROCS(4)
	var all sync.WaitGroup
	results := make([]int, 100)
	for i := range results {
		i := i
		all.Add(1)
		go func() {
			defer all.Done()
			results[i] = work(10000 + i)
		}()
	}
	all.Wait()
	total := 0
	for _, result := range results {
		total += result
	}
	fmt.Println("work", total)

	numbers := make(chan int)
	go func() {
		for i := 0; i < 1000; i++ {
			numbers <- i
		}
		close(numbers)
	}()
	sum := 0
	for number := range numbers {
		sum += number
	}
	fmt.Println("channel", sum)

	select {
	case <-time.After(20 * time.Millisecond):
		fmt.Println("timer")
	}

	kept := map[string][]byte{}
	for i := 0; i < 2000; i++ {
		kept[fmt.Sprint(i)] = make([]byte, 4096)
		if i%3 == 0 {
			delete(kept, fmt.Sprint(i/2))
		}
	}
	runtime.GC()
	fmt.Println("kept", len(kept))

	if err := os.WriteFile("goroutines", []byte("written\n"), 0o644); err != nil {
		fmt.Println(err)
	}
	text, err := os.ReadFile("goroutines")
	fmt.Printf("%q %v\n", text, err)

	reader, writer, _ := os.Pipe()
	go func() {
		time.Sleep(5 * time.Millisecond)
		writer.Write([]byte("pipe"))
		writer.Close()
	}()
	buffer := make([]byte, 10)
	n, _ := reader.Read(buffer)
	fmt.Println(string(buffer[:n]))

	// goroutines that compute for ever, more than there are CPUs: others have their turns
	var stop atomicFlag
	for i := 0; i < 4; i++ {
		all.Add(1)
		go func() {
			defer all.Done()
			for !stop.get() {
			}
		}()
	}
	time.Sleep(20 * time.Millisecond)
	runtime.GC()
	stop.set()
	all.Wait()
	fmt.Println("stopped")

	func() {
		defer func() { fmt.Println("recovered", recover() != nil) }()
		var nowhere *int
		*nowhere = 1
	}()
	os.Exit(4)
}

type atomicFlag struct{ value int32 }

func (f *atomicFlag) get() bool { return atomic.LoadInt32(&f.value) != 0 }
func (f *atomicFlag) set()      { atomic.StoreInt32(&f.value, 1) }
